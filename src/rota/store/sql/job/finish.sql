-- Record outcomes other than success: failed, cancelled, expired or skipped. Return one row: the accepted jobs, the
-- queues that received jobs, the runs that ended, and true if releases are pending.
--
-- An earlier statement of the transaction has locked the claims. A job that its claim no longer holds is not changed
-- and not returned.
with recorded as (
    insert into rota.outcomes (job, claim, worker, seconds, state, attempt, error)
    select given.job, claims.id, claims.worker, given.seconds::float8 / 1e6, given.state::rota.outcome,
           claims.attempts[array_position(claims.jobs, given.job)], given.error::json
      from unnest(%(claims)s::bigint[], %(jobs)s::bigint[], %(states)b::text[],
                  %(errors)b::text[], %(durations)s::bigint[]) as given (claim, job, state, error, seconds)
      join rota.claims on claims.id = given.claim
                      and claims.worker = %(worker)b::bigint
                      and given.job = any(claims.jobs)
    on conflict (job) do nothing
    returning outcomes.job, outcomes.state
),
cleared as (
    delete from rota.cancels where cancels.job = any(array(select recorded.job from recorded))
)
select array(select recorded.job from recorded), passed.queues, passed.runs, passed.has_pending
  from rota.release_successors(
       array(select recorded.job from recorded),
       array(select case recorded.state when 'expired' then 'failed' else recorded.state end
               from recorded)) as passed
