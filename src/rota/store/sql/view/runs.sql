-- Runs, the latest first, before an id; of one task, queue or state where asked.
select state.run, state.task, state.queue, state.state, state.attempt, state.worker, state.since,
       job.created, job.key
  from rota.jobs as job
  join rota.job_state as state on state.job = job.id
 where job.id < %(before)s::bigint
   and (%(task)s::text is null or job.task = %(task)s::text)
   and (%(queue)s::text is null or job.queue = %(queue)s::text)
   and (%(state)s::text is null or state.state = %(state)s::text)
 order by job.id desc
 limit %(limit)s::int
