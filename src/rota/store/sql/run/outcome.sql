-- Return the outcomes of runs, if they have finished: of tasks started alone, of flows, of calls; and true if a job in
-- an open run has failed. No row: there is no such run.
select job.id, job.task, false, outcome.state::text, outcome.result, outcome.error,
       false
  from rota.jobs as job
  left join rota.outcomes as outcome on outcome.job = job.id
 where job.id = any(%(runs)s::bigint[])
 union all
select run.id, coalesce(run.flow, ''), true, outcome.state::text, null, null,
       coalesce((select waiting.failed > 0 from rota.waiting where waiting.job = run.id), false)
  from rota.runs as run
  left join rota.outcomes as outcome on outcome.job = run.id
 where run.id = any(%(runs)s::bigint[])
