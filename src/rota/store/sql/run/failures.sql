-- Return the jobs of a run that failed or expired, earliest first, at most `limit`.
select job.id, job.task, outcome.state::text, outcome.error
  from rota.runs as run
 cross join lateral unnest(run.jobs) as member (job)
  join rota.jobs as job on job.id = member.job
  join rota.outcomes as outcome on outcome.job = job.id
 where run.id = %(run)s::bigint
   and outcome.state in ('failed', 'expired')
 order by outcome.at, job.id
 limit %(limit)s::int
