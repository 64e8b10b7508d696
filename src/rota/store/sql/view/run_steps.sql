-- Return the steps and sleeps of a run's jobs, or of one job; by job, earliest first, at most `limit`.
select steps.job, steps.kind::text, steps.name, steps.at, steps.seconds, steps.wake_at, steps.open
  from unnest(coalesce((select runs.jobs from rota.runs where runs.id = %(run)s::bigint), '{}') || %(run)s::bigint)
       as member (job)
  join rota.steps on steps.job = member.job
 where steps.kind in ('step', 'sleep', 'wait')
 order by steps.job, steps.position
 limit %(limit)s::int
