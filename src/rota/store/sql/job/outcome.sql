-- A job's outcome, if it has one; no row: there is no such job.
select job.id, job.task, outcome.state::text, outcome.result, outcome.error
  from rota.jobs as job
  left join rota.outcomes as outcome on outcome.job = job.id
 where job.id = any(%(jobs)s::bigint[])
