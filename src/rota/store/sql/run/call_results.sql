-- Return the results of a job's calls in the order they were made: first its jobs, then the flows among them.
select job.id, false, outcome.state::text, outcome.result, outcome.error
  from rota.runs as run
 cross join lateral unnest(run.jobs) with ordinality as member (job, number)
  join rota.jobs as job on job.id = member.job
  left join rota.outcomes as outcome on outcome.job = job.id
 where run.id = %(run)s::bigint
 union all
select part.id, true, outcome.state::text, null, null
  from rota.runs as run
  join rota.runs as part on part.parent = run.parent and part.successors = array[run.id]
  left join rota.outcomes as outcome on outcome.job = part.id
 where run.id = %(run)s::bigint
 order by 2, 1
