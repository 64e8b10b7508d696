-- Record failed attempts, and let their jobs sleep until the next attempt. A job with a cancel request is cancelled
-- instead. Returns the same row as `job/finish`.
--
-- An earlier statement of the transaction has locked the claims, so cancel requests written before are visible here.
with accepted as materialized (
    select given.job, given.delay, given.error, given.seconds, claims.id as claim,
           claims.attempts[array_position(claims.jobs, given.job)] as attempt,
           claims.lost[array_position(claims.jobs, given.job)] as lost,
           exists (select from rota.cancels where cancels.job = given.job) as to_cancel
      from unnest(%(claims)s::bigint[], %(jobs)s::bigint[], %(delays)b::float8[],
                  %(errors)b::text[], %(durations)s::bigint[]) as given (claim, job, delay, error, seconds)
      join rota.claims on claims.id = given.claim
                      and claims.worker = %(worker)b::bigint
                      and given.job = any(claims.jobs)
),
kept as (
    insert into rota.attempts (job, claim, worker, seconds, state, attempt, error)
    select accepted.job, accepted.claim, %(worker)b::bigint, accepted.seconds::float8 / 1e6, 'failed',
           accepted.attempt, accepted.error::json
      from accepted
     where not accepted.to_cancel
),
ended as (
    insert into rota.outcomes (job, claim, worker, seconds, state, attempt, error)
    select accepted.job, accepted.claim, %(worker)b::bigint, accepted.seconds::float8 / 1e6, 'cancelled',
           accepted.attempt, accepted.error::json
      from accepted
     where accepted.to_cancel
    on conflict (job) do nothing
),
cleared as (
    delete from rota.cancels
     where cancels.job = any(array(select accepted.job from accepted where accepted.to_cancel))
),
slept as (
    insert into rota.sleeping (job, wake_at, priority, attempt, lost, queue, task)
    select accepted.job, rota.clock() + make_interval(secs => accepted.delay), job.priority,
           accepted.attempt + 1,
           -- The code ran and returned, so the job is no longer a suspect.
           case when accepted.lost < 0 then greatest(-accepted.lost - 2, 0) else accepted.lost end, job.queue, job.task
      from accepted
     cross join lateral (
           select jobs.priority, jobs.queue, jobs.task from rota.jobs where jobs.id = accepted.job offset 0
           ) as job
     where not accepted.to_cancel
)
select array(select accepted.job from accepted), passed.queues, passed.runs, passed.has_pending
  from rota.release_successors(
       array(select accepted.job from accepted where accepted.to_cancel),
       array(select 'cancelled'::rota.outcome from accepted where accepted.to_cancel)) as passed
