-- Return the results of jobs for the successors that take them as arguments. `offset 0`
-- forces one index look-up per job.
select outcome.job, outcome.result::text
  from unnest(%(jobs)s::bigint[]) as wanted (job)
 cross join lateral (
       select outcomes.job, outcomes.result
         from rota.outcomes
        where outcomes.job = wanted.job
          and outcomes.state = 'succeeded'
       offset 0
       ) as outcome
