-- Return the latest events of a run and its jobs, or of one job, latest first. Steps only if there are few enough
-- jobs. The start of an attempt is computed from its end and its duration.
with members as materialized (
    select member.job
      from unnest(coalesce((select runs.jobs from rota.runs where runs.id = %(run)s::bigint), '{}') || %(run)s::bigint)
           as member (job)
),
ended as materialized (
    select outcomes.job, outcomes.at, outcomes.seconds, outcomes.state::text, outcomes.attempt, outcomes.worker,
           outcomes.error
      from members
      join rota.outcomes on outcomes.job = members.job
     union all
    select attempts.job, attempts.at, attempts.seconds, attempts.state::text, attempts.attempt, attempts.worker,
           attempts.error
      from members
      join rota.attempts on attempts.job = members.job
)
select found.at, found.what, found.job, found.attempt, found.worker, found.seconds, found.name, found.wake_at,
       found.error
  from (select coalesce(runs.created, jobs.created), 'created', members.job, null::smallint, null::bigint, null::real,
               null::text, null::timestamptz, null::json
          from members
          left join rota.runs on runs.id = members.job
          left join rota.jobs on jobs.id = members.job
         where members.job = %(run)s::bigint
         union all
        select ended.at - make_interval(secs => ended.seconds), 'began', ended.job, ended.attempt, ended.worker, null,
               null,
               null, null
          from ended
         where ended.seconds is not null
         union all
        select ended.at, ended.state, ended.job, ended.attempt, ended.worker, ended.seconds, null, null, ended.error
          from ended
         union all
        select claims.at, 'claimed', held.job, held.attempt, claims.worker, null, null, null, null
          from rota.claims
         cross join lateral unnest(claims.jobs, claims.attempts) as held (job, attempt)
          join members on members.job = held.job
         union all
        select sleeping.since, 'sleeping', sleeping.job, sleeping.attempt, null, null,
               array_to_string(sleeping.signals, ', '),
               nullif(sleeping.wake_at, 'infinity'), null
          from members
          join rota.sleeping on sleeping.job = members.job
         union all
        select quarantine.at, 'quarantined', quarantine.job, quarantine.attempt, null, null, null, null,
               quarantine.error
          from members
          join rota.quarantine on quarantine.job = members.job
         union all
        select cancels.at, 'cancel_requested', cancels.job, null, null, null, null, null, null
          from members
          join rota.cancels on cancels.job = members.job
         union all
        select steps.at, steps.kind::text, steps.job, null, null, steps.seconds, steps.name, steps.wake_at, steps.error
          from members
          join rota.steps on steps.job = members.job
         where (select count(*) from members) <= %(max_jobs_with_steps)s::int
         union all
        select signals.at, 'signal', null, null, null, null, signals.name, null, null
          from rota.signals
         where signals.run = %(run)s::bigint and signals.at is not null)
       as found (at, what, job, attempt, worker, seconds, name, wake_at, error)
 where found.at is not null
 order by found.at desc, found.what = 'created', found.job desc
 limit %(limit)s::int
