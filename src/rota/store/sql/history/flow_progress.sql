-- Return for each of these flow runs the number of its jobs that have ended (null if it has more than 2,000 jobs), and
-- the number of all its jobs.
select runs.id,
       case when cardinality(runs.jobs) <= 2000
            then (select count(*)
                    from unnest(runs.jobs) as member (job)
                   cross join lateral (
                         select from rota.outcomes where outcomes.job = member.job offset 0) as ended) end,
       cardinality(runs.jobs)
  from rota.runs
 where runs.id = any(%(runs)s::bigint[])
