-- Return for each task the outcomes of its jobs in the flow's last `run_limit` runs, and the duration of the last
-- attempt of successful jobs. Reads the last run, and earlier ones while all of them together have at most `job_limit`
-- jobs.
select job.task, count(ended.state), count(*) filter (where ended.state = 'succeeded'),
       count(*) filter (where ended.state in ('failed', 'expired')), count(*) filter (where ended.state = 'skipped'),
       percentile_cont(0.5) within group (order by ended.seconds) filter (where ended.state = 'succeeded'),
       percentile_cont(0.95) within group (order by ended.seconds) filter (where ended.state = 'succeeded')
  from (select latest.jobs,
               sum(cardinality(latest.jobs)) over (order by latest.id desc) as many,
               row_number() over (order by latest.id desc) as place
          from (select runs.id, runs.jobs
                  from rota.runs
                 where runs.flow = %(flow)s::text
                   and runs.flow is not null
                   and runs.parent is null
                 order by runs.id desc
                 limit %(run_limit)s::int) as latest) as last
 cross join lateral unnest(last.jobs) as member (job)
 cross join lateral (select jobs.task from rota.jobs where jobs.id = member.job offset 0) as job
  left join lateral (
       select outcomes.state, outcomes.seconds::float8 as seconds
         from rota.outcomes
        where outcomes.job = member.job
       offset 0) as ended on true
 where last.place = 1 or last.many <= %(job_limit)s::int
 group by job.task
 order by job.task
