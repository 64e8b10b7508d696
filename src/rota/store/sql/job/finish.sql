-- Record outcomes other than success: failed, cancelled, expired or skipped. Return one row: the accepted jobs, the
-- queues that received jobs, the runs that ended, and true if releases are pending.
--
-- A job that its claim no longer holds is not changed and not returned.
with removed as materialized (
    select removed.*
      from rota.remove_from_claims(%(worker)b::bigint, %(claims)s::bigint[], %(jobs)s::bigint[]) as removed
),
recorded as (
    insert into rota.outcomes (job, claim, worker, seconds, state, attempt, error)
    select removed.job, removed.claim, %(worker)b::bigint, given.seconds::float8 / 1e6, given.state::rota.outcome,
           removed.attempt, given.error::json
      from unnest(%(claims)s::bigint[], %(jobs)s::bigint[], %(states)b::text[],
                  %(errors)b::text[], %(durations)s::bigint[]) as given (claim, job, state, error, seconds)
      join removed on removed.claim = given.claim and removed.job = given.job
    on conflict (job) do nothing
    returning outcomes.job, outcomes.state
)
select array(select recorded.job from recorded), passed.queues, passed.runs, passed.has_pending
  from rota.release_successors(
       array(select recorded.job from recorded),
       array(select case recorded.state when 'expired' then 'failed' else recorded.state end
               from recorded)) as passed
