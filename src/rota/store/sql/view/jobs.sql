-- Return a page of the jobs of a run in the order of its graph; arguments and results only with `with_values`.
--
-- Does not use the view `job_state`, although it has the same states: joined to it, the planner reads all jobs.
with members as materialized (
    select member.job, member.number, run.id as run
      from rota.runs as run
     cross join lateral unnest(run.jobs[%(after)s::int + 1:least(%(after)s::bigint + %(limit)s::int, 2147483647)::int])
                        with ordinality as member (job, number)
     where run.id = %(run)s::bigint
),
held as materialized (
    select held.job, held.attempt, claims.worker, claims.at
      from rota.claims
     cross join lateral unnest(claims.jobs, claims.attempts) as held (job, attempt)
     where held.job in (select members.job from members)
)
select job.id, job.task, job.queue,
       coalesce(outcome.state::text,
                case when held.job is not null then 'running'
                     when sleeping.job is not null then 'sleeping'
                     when waiting.job is not null then 'waiting'
                     when quarantine.job is not null then 'quarantined'
                     else 'queued' end),
       coalesce(outcome.attempt, held.attempt, sleeping.attempt, waiting.attempt, quarantine.attempt, tried.attempt + 1,
                1)::smallint,
       coalesce(outcome.worker, held.worker),
       coalesce(outcome.at, held.at, sleeping.since, waiting.since, quarantine.at, tried.at, job.created),
       job.rule::text,
       array(select child.job from unnest(job.successors) as child (job) where child.job <> members.run),
       array(select input.value::bigint from json_each_text(job.inputs) as input),
       outcome.at, outcome.seconds, outcome.error, nullif(sleeping.wake_at, 'infinity'), sleeping.signals,
       progress.done,
       progress.total,
       case when %(with_values)s::boolean then job.args end, case when %(with_values)s::boolean then outcome.result end
  from members
 cross join lateral (select jobs.* from rota.jobs where jobs.id = members.job offset 0) as job
  left join held on held.job = members.job
  left join lateral (select outcomes.* from rota.outcomes where outcomes.job = members.job offset 0) as outcome on true
  left join lateral (select sleeping.* from rota.sleeping where sleeping.job = members.job offset 0) as sleeping on true
  left join lateral (select waiting.* from rota.waiting where waiting.job = members.job offset 0) as waiting on true
  left join lateral (select quarantine.* from rota.quarantine where quarantine.job = members.job offset 0) as quarantine
         on true
  left join lateral (select progress.* from rota.progress where progress.job = members.job offset 0) as progress on true
 cross join lateral (select max(attempts.attempt) as attempt, max(attempts.at) as at
                       from rota.attempts
                      where attempts.job = members.job) as tried
 order by members.number
