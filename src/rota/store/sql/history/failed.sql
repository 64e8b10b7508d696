-- The latest runs that failed, by number, the last first, among the latest so many jobs and runs that did: what each is called,
-- at which attempt it failed and when. Jobs of a flow's run and calls are left out: the run they belong to is here.
select ended.job, coalesce(job.task, run.flow), ended.attempt, ended.at
  from (select outcomes.job, outcomes.attempt, outcomes.at
          from rota.outcomes
         where outcomes.state in ('failed', 'cancelled', 'expired')
           and outcomes.state = 'failed'
         order by outcomes.job desc
         limit %(among)s::int) as ended
  left join lateral (
       select jobs.task, jobs.run from rota.jobs where jobs.id = ended.job offset 0) as job on true
  left join lateral (
       select runs.flow, runs.parent from rota.runs where runs.id = ended.job offset 0) as run on true
 where job.task is not null and job.run is null
    or run.flow is not null and run.parent is null
 order by ended.job desc
 limit %(limit)s::int
