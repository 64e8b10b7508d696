-- Quarantine jobs that have crashed their workers too often. A job with a cancel request is cancelled instead. Returns
-- the same row as `job/finish`.
with removed as materialized (
    select removed.*
      from rota.remove_from_claims(%(worker)b::bigint, %(claims)s::bigint[], %(jobs)s::bigint[]) as removed
),
accepted as materialized (
    select removed.*, given.error::json as error
      from unnest(%(claims)s::bigint[], %(jobs)s::bigint[], %(errors)b::text[]) as given (claim, job, error)
      join removed on removed.claim = given.claim and removed.job = given.job
),
ended as (
    insert into rota.outcomes (job, claim, worker, state, attempt, error)
    select accepted.job, accepted.claim, %(worker)b::bigint, 'cancelled', accepted.attempt, accepted.error
      from accepted
     where accepted.to_cancel
    on conflict (job) do nothing
),
quarantined as (
    insert into rota.quarantine (job, priority, attempt, crashes, queue, task, error)
    select accepted.job, job.priority, accepted.attempt, accepted.crashes, job.queue, job.task, accepted.error
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
