-- Record the outcome, failed or cancelled, of jobs that were lost with a worker and are not retried. Returns the same
-- row as `job/finish`.
--
-- The lost attempt is the last one, so its row in `attempts` becomes the outcome.
with removed as materialized (
    select removed.*
      from rota.remove_from_claims(%(worker)b::bigint, %(claims)s::bigint[], %(jobs)s::bigint[]) as removed
),
accepted as materialized (
    select removed.*, given.state::rota.outcome as state, given.error::json as error
      from unnest(%(claims)s::bigint[], %(jobs)s::bigint[], %(states)b::text[], %(errors)b::text[])
           as given (claim, job, state, error)
      join removed on removed.claim = given.claim and removed.job = given.job
),
last as (
    delete from rota.attempts
     using accepted
     where attempts.job = accepted.job
       and attempts.attempt = accepted.attempt - 1
       and attempts.error ->> 'type' = 'rota.errors.WorkerLost'
    returning attempts.job, attempts.worker, attempts.attempt
),
recorded as (
    insert into rota.outcomes (job, claim, worker, state, attempt, error)
    select accepted.job, accepted.claim, coalesce(last.worker, %(worker)b::bigint), accepted.state,
           coalesce(last.attempt, accepted.attempt), accepted.error
      from accepted
      left join last on last.job = accepted.job
    on conflict (job) do nothing
    returning outcomes.job, outcomes.state
)
select array(select recorded.job from recorded), passed.queues, passed.runs, passed.has_pending
  from rota.release_successors(
       array(select recorded.job from recorded), array(select recorded.state from recorded)) as passed
