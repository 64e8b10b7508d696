-- Record the outcome, failed or cancelled, of jobs that were lost with a worker and are not retried. Returns the same
-- row as `job/finish`.
--
-- An earlier statement of the transaction has locked the claims. The lost attempt is the last one, so its row in
-- `attempts` becomes the outcome.
with member as materialized (
    select given.job, given.state::rota.outcome as state, given.error::json as error, claims.id as claim,
           claims.worker,
           claims.attempts[array_position(claims.jobs, given.job)] as attempt
      from unnest(%(claims)s::bigint[], %(jobs)s::bigint[], %(states)b::text[], %(errors)b::text[])
           as given (claim, job, state, error)
      join rota.claims on claims.id = given.claim
                      and claims.worker = %(worker)b::bigint
                      and given.job = any(claims.jobs)
),
last as (
    delete from rota.attempts
     using member
     where attempts.job = member.job
       and attempts.attempt = member.attempt - 1
       and attempts.error ->> 'type' = 'rota.errors.WorkerLost'
    returning attempts.job, attempts.worker, attempts.attempt
),
recorded as (
    insert into rota.outcomes (job, claim, worker, state, attempt, error)
    select member.job, member.claim, coalesce(last.worker, member.worker), member.state,
           coalesce(last.attempt, member.attempt), member.error
      from member
      left join last on last.job = member.job
    on conflict (job) do nothing
    returning outcomes.job, outcomes.state
),
cleared as (
    delete from rota.cancels where cancels.job = any(array(select recorded.job from recorded))
)
select array(select recorded.job from recorded), passed.queues, passed.runs, passed.has_pending
  from rota.release_successors(
       array(select recorded.job from recorded), array(select recorded.state from recorded)) as passed
