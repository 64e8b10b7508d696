-- Of these runs of flows, how many of their jobs have ended, unless they are very many, and how many there are.
select runs.id,
       case when cardinality(runs.jobs) <= 2000
            then (select count(*)
                    from unnest(runs.jobs) as member (job)
                   cross join lateral (
                         select from rota.outcomes where outcomes.job = member.job offset 0) as ended) end,
       cardinality(runs.jobs)
  from rota.runs
 where runs.id = any(%(runs)s::bigint[])
