-- How many of these jobs have ended.
select count(*) as jobs
  from rota.outcomes
 where outcomes.job = any(%(jobs)s::bigint[])
