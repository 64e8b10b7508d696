-- Return those of these ids that are runs, of tasks or of flows, latest first. Jobs of a run are excluded.
select given.id, job.id is null
  from unnest(%(ids)s::bigint[]) as given (id)
  left join rota.jobs as job on job.id = given.id
  left join rota.runs as run on run.id = given.id
 where (job.id is not null and job.run is null) or (run.id is not null and run.flow is not null)
 order by given.id desc
