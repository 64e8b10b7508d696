-- Record outcomes other than success: failed, cancelled or expired. Answers the jobs accepted.
--
-- The claims are held by an earlier statement of the transaction; a job that its claim no longer
-- holds is left alone and not answered.
with recorded as (
    insert into rota.outcomes (job, claim, worker, took, state, attempt, error)
    select given.job, claims.id, claims.worker, given.took::float8 / 1e6, given.state::rota.outcome,
           claims.attempts[array_position(claims.jobs, given.job)], given.error::json
      from unnest(%(claims)s::bigint[], %(jobs)s::bigint[], %(states)b::text[],
                  %(errors)b::text[], %(took)s::bigint[]) as given (claim, job, state, error, took)
      join rota.claims on claims.id = given.claim
                      and claims.worker = %(worker)b::bigint
                      and given.job = any(claims.jobs)
    on conflict (job) do nothing
    returning outcomes.job
),
obeyed as (
    delete from rota.cancels where cancels.job = any(array(select recorded.job from recorded))
)
select recorded.job from recorded
