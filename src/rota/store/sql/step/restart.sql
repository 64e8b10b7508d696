-- Restart a job with new arguments. Deletes its journal, and the signals it has received if no other job can wait for
-- them. Returns the same columns as `job/finish`.
--
-- A job with a cancel request is cancelled instead.
with removed as materialized (
    select removed.*
      from rota.remove_from_claims(%(worker)b::bigint, %(claims)s::bigint[], %(jobs)s::bigint[]) as removed
),
restarted as materialized (
    select removed.job, given.args
      from unnest(%(claims)s::bigint[], %(jobs)s::bigint[], %(args)s::json[]) as given (claim, job, args)
      join removed on removed.claim = given.claim and removed.job = given.job
     where not removed.to_cancel
),
ended as (
    insert into rota.outcomes (job, claim, worker, state, attempt)
    select removed.job, removed.claim, %(worker)b::bigint, 'cancelled', removed.attempt
      from removed
     where removed.to_cancel
    on conflict (job) do nothing
),
heard as (
    delete from rota.signals
     using restarted
     cross join lateral (
           select from rota.jobs where jobs.id = restarted.job and jobs.run is null offset 0) as exclusive
     cross join lateral (
           select steps.name
             from rota.steps
            where steps.job = restarted.job and steps.kind = 'wait' and not steps.open and steps.error is null
           offset 0) as step
     where signals.run = restarted.job
       and signals.name = step.name
),
forgotten as (
    delete from rota.steps where steps.job = any(array(select restarted.job from restarted))
),
lost as (
    delete from rota.checkpoints where checkpoints.job = any(array(select restarted.job from restarted))
),
-- Its child runs are kept, but the restarted job does not find them by number.
called as (
    update rota.runs
       set number = null
     where runs.parent = any(array(select restarted.job from restarted))
       and runs.number is not null
),
written as (
    update rota.jobs
       set args = restarted.args, inputs = null, expires = null
      from restarted
     where jobs.id = restarted.job
    returning jobs.id, jobs.priority, jobs.queue, jobs.task
),
enqueued as (
    insert into rota.queued (seq, job, priority, queue, task)
    select nextval('rota.ids'), written.id, written.priority, written.queue, written.task from written
    returning queued.queue
)
select array(select removed.job from removed),
       array(select distinct enqueued.queue from enqueued) || passed.queues, passed.runs, passed.has_pending
  from rota.release_successors(
       array(select removed.job from removed where removed.to_cancel),
       array(select 'cancelled'::rota.outcome from removed where removed.to_cancel)) as passed
