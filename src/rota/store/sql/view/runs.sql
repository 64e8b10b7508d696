-- Runs, the latest first, before an id; of one task or flow, queue or state where asked. Jobs that belong to a
-- run and calls that a job has made are not listed: they are shown with it.
select listed.run, listed.name, listed.is_flow, listed.queue, listed.state, listed.attempt, listed.worker,
       listed.since, listed.created, listed.key, nullif(asleep.wake, 'infinity'), asleep.signals, progress.done,
       progress.total, progress.note
  from ((select state.run, state.task as name, false as is_flow, state.queue, state.state, state.attempt,
                state.worker, state.since, job.created, job.key
           from rota.jobs as job
           join rota.job_state as state on state.job = job.id
          where job.id < %(before)s::bigint
            and job.run is null
            and (%(task)s::text is null or job.task = %(task)s::text)
            and (%(queue)s::text is null or job.queue = %(queue)s::text)
            and (%(state)s::text is null or state.state = %(state)s::text)
          order by job.id desc
          limit %(limit)s::int)
         union all
        (select state.run, state.name, true, null, state.state, state.attempt, null, state.since, state.created,
                state.key
           from rota.runs as run
           join rota.run_state as state on state.run = run.id and state.is_flow
          where run.id < %(before)s::bigint
            and run.parent is null
            and (%(task)s::text is null or run.flow = %(task)s::text)
            and %(queue)s::text is null
            and (%(state)s::text is null or state.state = %(state)s::text)
          order by run.id desc
          limit %(limit)s::int)) as listed
  left join rota.asleep on asleep.job = listed.run
  left join rota.progress on progress.job = listed.run
 order by listed.run desc
 limit %(limit)s::int
