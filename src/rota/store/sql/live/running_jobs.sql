-- Count the jobs that workers hold now, by worker and task, most frequent task first.
select claims.worker, jobs.task, count(*) as jobs
  from rota.claims
 cross join lateral unnest(claims.jobs) as member (job)
  join rota.jobs on jobs.id = member.job
 group by claims.worker, jobs.task
 order by claims.worker, count(*) desc, jobs.task
