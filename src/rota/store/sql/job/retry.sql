-- Record failed attempts, and let their jobs sleep until the next attempt. A job with a cancel request is cancelled
-- instead. Returns the same row as `job/finish`.
with removed as materialized (
    select removed.*
      from rota.remove_from_claims(%(worker)b::bigint, %(claims)s::bigint[], %(jobs)s::bigint[]) as removed
),
accepted as materialized (
    select removed.*, given.delay, given.error::json as error, given.seconds::float8 / 1e6 as seconds
      from unnest(%(claims)s::bigint[], %(jobs)s::bigint[], %(delays)b::float8[],
                  %(errors)b::text[], %(durations)s::bigint[]) as given (claim, job, delay, error, seconds)
      join removed on removed.claim = given.claim and removed.job = given.job
),
kept as (
    insert into rota.attempts (job, claim, worker, seconds, state, attempt, error)
    select accepted.job, accepted.claim, %(worker)b::bigint, accepted.seconds, 'failed', accepted.attempt,
           accepted.error
      from accepted
     where not accepted.to_cancel
),
ended as (
    insert into rota.outcomes (job, claim, worker, seconds, state, attempt, error)
    select accepted.job, accepted.claim, %(worker)b::bigint, accepted.seconds, 'cancelled', accepted.attempt,
           accepted.error
      from accepted
     where accepted.to_cancel
    on conflict (job) do nothing
),
-- The code ran and returned, so the job is no longer a suspect.
slept as (
    insert into rota.sleeping (job, wake_at, priority, attempt, crashes, queue, task)
    select accepted.job, rota.clock() + make_interval(secs => accepted.delay), job.priority,
           accepted.attempt + 1, accepted.crashes, job.queue, job.task
      from accepted
     cross join lateral (
           select jobs.priority, jobs.queue, jobs.task from rota.jobs where jobs.id = accepted.job offset 0
           ) as job
     where not accepted.to_cancel
)
select array(select removed.job from removed), passed.queues, passed.runs, passed.has_pending
  from rota.release_successors(
       array(select removed.job from removed where removed.to_cancel),
       array(select 'cancelled'::rota.outcome from removed where removed.to_cancel)) as passed
