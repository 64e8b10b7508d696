-- Return jobs to the queue unchanged, under their old `seq`. The attempt is not counted. A job with a cancel request is
-- cancelled instead. Returns the same row as `job/finish`.
--
-- The code of a job may still run: the exclusive lock waits for its transaction that has locked the claim
-- (`claim/lock_shared`).
with removed as materialized (
    select removed.*
      from rota.remove_from_claims(%(worker)b::bigint, %(claims)s::bigint[], %(jobs)s::bigint[],
                                   exclusive => true) as removed
),
ended as (
    insert into rota.outcomes (job, claim, worker, state, attempt)
    select removed.job, removed.claim, %(worker)b::bigint, 'cancelled', removed.attempt
      from removed
     where removed.to_cancel
    on conflict (job) do nothing
),
enqueued as (
    insert into rota.queued (seq, job, priority, attempt, crashes, suspicion, queue, task)
    select removed.seq, removed.job, job.priority, removed.attempt, removed.crashes, removed.suspicion, job.queue,
           job.task
      from removed
     cross join lateral (
           select jobs.priority, jobs.queue, jobs.task from rota.jobs where jobs.id = removed.job offset 0
           ) as job
     where not removed.to_cancel
    returning queued.queue
)
select array(select removed.job from removed),
       array(select distinct enqueued.queue from enqueued) || passed.queues, passed.runs, passed.has_pending
  from rota.release_successors(
       array(select removed.job from removed where removed.to_cancel),
       array(select 'cancelled'::rota.outcome from removed where removed.to_cancel)) as passed
