-- Return the open waits of a run's jobs, or of one job: for a time, a signal, or the retry of a step. Only of
-- unfinished jobs.
select steps.job, steps.kind::text, steps.name, steps.number, steps.tries, steps.wake_at
  from (select coalesce(max(runs.jobs), '{}') || %(run)s::bigint as jobs
          from rota.runs
         where runs.id = %(run)s::bigint) as whole
  join rota.steps on steps.job = any(whole.jobs)
 where (steps.open or (steps.kind = 'sleep' and steps.wake_at > rota.clock()))
   and not exists (select from rota.outcomes where outcomes.job = steps.job)
 order by steps.job, steps.position
