-- Try a run that ended badly once more: its outcome becomes one more attempt, its job is ready again.
-- No row: it has not ended, or it succeeded.
with undone as (
    delete from rota.outcomes
     where outcomes.job = %(run)s::bigint
       and outcomes.state <> 'succeeded'
    returning outcomes.*
),
kept as (
    insert into rota.attempts (job, claim, worker, at, took, state, attempt, result, error)
    select undone.job, undone.claim, undone.worker, undone.at, undone.took, undone.state,
           undone.attempt, undone.result, undone.error
      from undone
),
forgiven as (
    delete from rota.cancels where cancels.job = any(array(select undone.job from undone))
)
insert into rota.ready (seq, job, lane, attempt, queue, task)
select nextval('rota.ids'), job.id, job.lane, undone.attempt + 1, job.queue, job.task
  from undone
  join rota.jobs as job on job.id = undone.job
returning ready.queue
