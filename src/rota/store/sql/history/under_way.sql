-- The latest runs that are under way, by number, the last first: flows among the latest so many runs, and jobs that workers hold
-- and that are no part of a flow's run. Of a flow, how many of its jobs have ended, unless they are very many; of a job, what it
-- says of itself.
select found.run, found.name, found.is_flow, found.created, found.done, found.total
  from ((select run.id as run, run.flow as name, true as is_flow, run.created,
                case when cardinality(run.jobs) <= 2000
                     then (select count(*)
                             from unnest(run.jobs) as member (job)
                            cross join lateral (
                                  select from rota.outcomes where outcomes.job = member.job offset 0) as ended) end::float8 as done,
                cardinality(run.jobs)::float8 as total
           from (select latest.id, latest.flow, latest.created, latest.jobs
                   from (select runs.id, runs.flow, runs.parent, runs.created, runs.jobs
                           from rota.runs
                          order by runs.id desc
                          limit %(among)s::int) as latest
                  where latest.flow is not null
                    and latest.parent is null
                    and not exists (select from rota.outcomes where outcomes.job = latest.id)
                  order by latest.id desc
                  limit %(limit)s::int) as run)
         union all
        (select job.id, job.task, false, job.created, said.done, said.total
           from (select member.job
                   from (select claims.jobs from rota.claims order by claims.id desc limit %(among)s::int) as latest
                  cross join lateral unnest(latest.jobs) as member (job)
                  order by member.job desc
                  limit %(among)s::int) as held
          cross join lateral (
                select jobs.id, jobs.task, jobs.run, jobs.created from rota.jobs where jobs.id = held.job offset 0) as job
           left join lateral (
                select progress.done, progress.total from rota.progress where progress.job = held.job offset 0) as said on true
          where job.run is null
          order by job.id desc
          limit %(limit)s::int)) as found
 order by found.run desc
 limit %(limit)s::int
