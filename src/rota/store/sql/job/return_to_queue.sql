-- Return jobs to the queue unchanged, under their old `seq`. The attempt is not counted. A job with a cancel request is
-- cancelled instead. Returns the same row as `job/finish`.
--
-- An earlier statement of the transaction has locked the claims.
with accepted as materialized (
    select member.job, member.attempt, member.lost, member.seq, claims.id as claim,
           exists (select from rota.cancels where cancels.job = member.job) as to_cancel
      from rota.claims
     cross join lateral unnest(claims.jobs, claims.attempts, claims.lost, claims.seqs)
           as member (job, attempt, lost, seq)
     where claims.id = any(%(claims)s::bigint[])
       and claims.worker = %(worker)b::bigint
       and member.job = any(%(jobs)s::bigint[])
),
ended as (
    insert into rota.outcomes (job, claim, worker, state, attempt)
    select accepted.job, accepted.claim, %(worker)b::bigint, 'cancelled', accepted.attempt
      from accepted
     where accepted.to_cancel
    on conflict (job) do nothing
),
cleared as (
    delete from rota.cancels
     where cancels.job = any(array(select accepted.job from accepted where accepted.to_cancel))
),
enqueued as (
    insert into rota.queued (seq, job, priority, attempt, lost, queue, task)
    select accepted.seq, accepted.job, job.priority, accepted.attempt, accepted.lost, job.queue, job.task
      from accepted
     cross join lateral (
           select jobs.priority, jobs.queue, jobs.task from rota.jobs where jobs.id = accepted.job offset 0
           ) as job
     where not accepted.to_cancel
    returning queued.queue
)
select array(select accepted.job from accepted),
       array(select distinct enqueued.queue from enqueued) || passed.queues, passed.runs, passed.has_pending
  from rota.release_successors(
       array(select accepted.job from accepted where accepted.to_cancel),
       array(select 'cancelled'::rota.outcome from accepted where accepted.to_cancel)) as passed
