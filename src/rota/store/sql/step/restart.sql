-- Restart a job with new arguments. Deletes its journal, and the signals it has received if no other job can wait for
-- them. Returns the same columns as `job/finish`.
--
-- An earlier statement of the transaction has locked the claims. A job with a cancel request is cancelled instead.
with accepted as materialized (
    select given.job, given.args, claims.id as claim,
           claims.attempts[array_position(claims.jobs, given.job)] as attempt,
           exists (select from rota.cancels where cancels.job = given.job) as to_cancel
      from unnest(%(claims)s::bigint[], %(jobs)s::bigint[], %(args)s::json[]) as given (claim, job, args)
      join rota.claims on claims.id = given.claim
                      and claims.worker = %(worker)b::bigint
                      and given.job = any(claims.jobs)
),
restarted as materialized (
    select accepted.job, accepted.args from accepted where not accepted.to_cancel
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
select array(select accepted.job from accepted),
       array(select distinct enqueued.queue from enqueued) || passed.queues, passed.runs, passed.has_pending
  from rota.release_successors(
       array(select accepted.job from accepted where accepted.to_cancel),
       array(select 'cancelled'::rota.outcome from accepted where accepted.to_cancel)) as passed
