-- The results of these jobs, for those who take them as arguments: one look-up each, however many take it.
select outcome.job, outcome.result::text
  from unnest(%(jobs)s::bigint[]) as wanted (job)
 cross join lateral (
       select outcomes.job, outcomes.result
         from rota.outcomes
        where outcomes.job = wanted.job
          and outcomes.state = 'succeeded'
       offset 0
       ) as outcome
