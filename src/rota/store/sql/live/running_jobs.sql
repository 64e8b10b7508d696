-- What workers hold at this moment, by task, most first.
select claims.worker, jobs.task, count(*) as jobs
  from rota.claims
 cross join lateral unnest(claims.jobs) as member (job)
  join rota.jobs on jobs.id = member.job
 group by claims.worker, jobs.task
 order by claims.worker, count(*) desc, jobs.task
