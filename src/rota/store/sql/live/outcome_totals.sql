-- Count all finished jobs by state, and their earlier attempts. Reads every outcome.
select outcomes.state::text, count(*) as jobs, coalesce(sum(outcomes.attempt - 1), 0)::bigint as retries
  from rota.outcomes
 where exists (select from rota.jobs where jobs.id = outcomes.job)
 group by outcomes.state
 order by outcomes.state
