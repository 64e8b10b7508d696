-- Quarantine jobs that have crashed their workers too often. A job with a cancel request is cancelled instead. Returns
-- the same row as `job/finish`.
--
-- An earlier statement of the transaction has locked the claims.
with member as materialized (
    select given.job, given.error::json as error, claims.id as claim,
           claims.attempts[array_position(claims.jobs, given.job)] as attempt,
           claims.lost[array_position(claims.jobs, given.job)] as lost,
           exists (select from rota.cancels where cancels.job = given.job) as to_cancel
      from unnest(%(claims)s::bigint[], %(jobs)s::bigint[], %(errors)b::text[]) as given (claim, job, error)
      join rota.claims on claims.id = given.claim
                      and claims.worker = %(worker)b::bigint
                      and given.job = any(claims.jobs)
),
ended as (
    insert into rota.outcomes (job, claim, worker, state, attempt, error)
    select member.job, member.claim, %(worker)b::bigint, 'cancelled', member.attempt, member.error
      from member
     where member.to_cancel
    on conflict (job) do nothing
),
cleared as (
    delete from rota.cancels
     where cancels.job = any(array(select member.job from member where member.to_cancel))
),
quarantined as (
    insert into rota.quarantine (job, priority, attempt, lost, queue, task, error)
    select member.job, job.priority, member.attempt, member.lost, job.queue, job.task, member.error
      from member
     cross join lateral (
           select jobs.priority, jobs.queue, jobs.task from rota.jobs where jobs.id = member.job offset 0
           ) as job
     where not member.to_cancel
)
select array(select member.job from member), passed.queues, passed.runs, passed.has_pending
  from rota.release_successors(
       array(select member.job from member where member.to_cancel),
       array(select 'cancelled'::rota.outcome from member where member.to_cancel)) as passed
