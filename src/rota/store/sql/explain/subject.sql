-- Return the job, or the run of several jobs, with this id: its name, outcome and cancel request. No row: the id is
-- unknown.
select job.id, coalesce(job.run, job.id) as run, false as is_flow, job.task as name, outcome.state::text, outcome.at,
       outcome.error, request.at as cancel_requested, rota.clock() as now
  from rota.jobs as job
  left join rota.outcomes as outcome on outcome.job = job.id
  left join rota.cancels as request on request.job = job.id
 where job.id = %(id)s::bigint
 union all
select run.id, run.id, true, coalesce(run.flow, ''), outcome.state::text, outcome.at, outcome.error, request.at,
       rota.clock()
  from rota.runs as run
  left join rota.outcomes as outcome on outcome.job = run.id
  left join rota.cancels as request on request.job = run.id
 where run.id = %(id)s::bigint
