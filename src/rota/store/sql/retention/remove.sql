-- Remove old runs, each with its jobs, outcomes, attempts, steps, key and remaining waiters. Returns the number of
-- runs and jobs removed, by queue and outcome.
--
-- Locks are never waited for. A run is removed only if its outcome is the one that was found, and if these rows can be
-- locked: the outcome, the run, its key, and the outcome of the job that started it. A transaction that retries the
-- run or that job, forks it, or starts it again by its key has locked one of them, and so keeps the run. A transaction
-- that arrives later waits for these locks and then finds the run removed.
with held as materialized (
    select given.run as id, ended.state, key.tuple, run.id is not null as large, run.jobs, job.queue,
           job.tuple as job
      from unnest(%(runs)s::bigint[], %(ended)s::timestamptz[]) as given (run, at)
     cross join lateral (
           select outcomes.state
             from rota.outcomes
            where outcomes.job = given.run
              and outcomes.at = given.at
              for update skip locked
           ) as ended
      left join lateral (
           select jobs.ctid as tuple, jobs.task, jobs.key, jobs.queue
             from rota.jobs
            where jobs.id = given.run
              and jobs.run is null
           offset 0
           ) as job on true
      left join lateral (
           select runs.id, runs.flow, runs.key, runs.parent, runs.jobs
             from rota.runs
            where job.tuple is null
              and runs.id = given.run
              for update skip locked
           ) as run on true
      left join lateral (
           select keys.ctid as tuple
             from rota.keys
            where keys.task = coalesce(run.flow, job.task)
              and keys.key = coalesce(run.key, job.key)
              and keys.run = given.run
              for update skip locked
           ) as key on true
      left join lateral (
           select outcomes.job
             from rota.outcomes
            where outcomes.job = run.parent
              for key share skip locked
           ) as parent on true
     where (run.id is not null or job.tuple is not null)
       and (coalesce(run.key, job.key) is null
            or key.tuple is not null
            or (select keys.run
                  from rota.keys
                 where keys.task = coalesce(run.flow, job.task)
                   and keys.key = coalesce(run.key, job.key)
                   and keys.run = given.run) is null)
       and (run.parent is null
            or parent.job is not null
            or (select jobs.id from rota.jobs where jobs.id = run.parent) is null)
),
member as materialized (
    select held.id as run, held.state, held.id as job, held.queue, held.job as tuple
      from held
     where not held.large
     union all
    select held.id, held.state, job.id, job.queue, job.tuple
      from held
      left join lateral (
           select job.id, job.queue, job.tuple
             from unnest(held.jobs) as listed (job)
            cross join lateral (
                  select jobs.id, jobs.queue, jobs.ctid as tuple
                    from rota.jobs
                   where jobs.id = listed.job
                     and jobs.run = held.id
                  offset 0
                  ) as job
           ) as job on true
     where held.large
),
deleted as materialized (
    select member.job as id from member
     union all
    select held.id from held where held.large
),
gone_jobs as (
    delete from rota.jobs where jobs.ctid = any(array(select member.tuple from member))
),
gone_runs as (
    delete from rota.runs where runs.id = any(array(select held.id from held where held.large))
),
gone_outcomes as (
    delete from rota.outcomes where outcomes.job = any(array(select deleted.id from deleted))
),
gone_attempts as (
    delete from rota.attempts where attempts.job = any(array(select deleted.id from deleted))
),
gone_checkpoints as (
    delete from rota.checkpoints
     where exists (select from rota.checkpoints)
       and checkpoints.job = any(array(select deleted.id from deleted))
),
gone_steps as (
    delete from rota.steps
     where exists (select from rota.steps)
       and steps.job = any(array(select deleted.id from deleted))
),
gone_signals as (
    delete from rota.signals
     where exists (select from rota.signals)
       and signals.ctid = any(array(
           select stale.tuple
             from deleted
            cross join lateral (
                  select signals.ctid as tuple
                    from rota.signals
                   where signals.run = deleted.id
                     for update skip locked
                  ) as stale))
),
gone_progress as (
    delete from rota.progress
     where exists (select from rota.progress)
       and progress.job = any(array(select deleted.id from deleted))
),
gone_logs as (
    delete from rota.logs
     where exists (select from rota.logs)
       and logs.job = any(array(select deleted.id from deleted))
),
gone_links as (
    delete from rota.trace_links
     where exists (select from rota.trace_links)
       and trace_links.job = any(array(select deleted.id from deleted))
),
gone_keys as (
    delete from rota.keys where keys.ctid = any(array(select held.tuple from held))
),
gone_waiters as (
    delete from rota.waiters
     where exists (select from rota.waiters)
       and waiters.ctid = any(array(
           select stale.tuple
             from deleted
            cross join lateral (
                  select waiters.ctid as tuple
                    from rota.waiters
                   where waiters.job = deleted.id
                     for update skip locked
                  ) as stale))
),
gone_cancels as (
    delete from rota.cancels
     where exists (select from rota.cancels)
       and cancels.ctid = any(array(
           select stale.tuple
             from deleted
            cross join lateral (
                  select cancels.ctid as tuple
                    from rota.cancels
                   where cancels.job = deleted.id
                     for update skip locked
                  ) as stale))
)
select went.queue, went.state::text, count(*), sum(went.jobs)::bigint
  from (select case when min(member.queue) = max(member.queue) then min(member.queue) end as queue,
               member.state, count(member.job) as jobs
          from member
         group by member.run, member.state) as went
 group by went.queue, went.state
