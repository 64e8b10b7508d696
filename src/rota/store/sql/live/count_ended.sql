-- Return how many of these jobs have finished.
select count(*) as jobs
  from rota.outcomes
 where outcomes.job = any(%(jobs)s::bigint[])
