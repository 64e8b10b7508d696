-- All that has ended, by state: how many jobs, and how many attempts of them had failed before. Reads every outcome.
select outcomes.state::text, count(*) as jobs, coalesce(sum(outcomes.attempt - 1), 0)::bigint as retries
  from rota.outcomes
 where exists (select from rota.jobs where jobs.id = outcomes.job)
 group by outcomes.state
 order by outcomes.state
