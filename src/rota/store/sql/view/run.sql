-- Everything about one run.
select state.run, state.task, state.queue, state.state, state.attempt, state.worker, state.since,
       job.created, job.expires, job.lane, job.key, job.args, job.options,
       outcome.at, outcome.took, outcome.result, outcome.error,
       (select asleep.wake from rota.asleep where asleep.job = job.id)
  from rota.jobs as job
  join rota.job_state as state on state.job = job.id
  left join rota.outcomes as outcome on outcome.job = job.id
 where job.id = %(run)s::bigint
