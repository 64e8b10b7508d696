-- Return the trace that a job, or the first job of a run, continues.
select jobs.trace
  from rota.jobs
 where jobs.id = coalesce((select runs.jobs[1] from rota.runs where runs.id = %(run)s::bigint), %(run)s::bigint)
   and jobs.trace is not null
