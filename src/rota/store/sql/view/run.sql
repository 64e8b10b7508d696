-- Return all columns of one run.
--
-- Suspects are looked up separately: of the queued jobs, they have an index of their own.
select state.run, state.task, state.queue, state.state, state.attempt, state.worker, state.since,
       job.created, job.expires, job.priority, job.key, job.args, job.options,
       outcome.at, outcome.seconds, outcome.result, coalesce(outcome.error, quarantine.error),
       nullif(sleeping.wake_at, 'infinity'), sleeping.signals, job.forked_from,
       coalesce(quarantine.crashes, suspect.crashes, 0) as crashes, suspect.job is not null as suspect
  from rota.jobs as job
  join rota.job_state as state on state.job = job.id
  left join rota.outcomes as outcome on outcome.job = job.id
  left join rota.sleeping on sleeping.job = job.id
  left join rota.quarantine on quarantine.job = job.id
  left join rota.queued as suspect on suspect.suspicion is not null and suspect.job = job.id
 where job.id = %(run)s::bigint
