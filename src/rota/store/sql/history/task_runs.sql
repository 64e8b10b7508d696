-- Return the last runs of a task among the latest `scan_limit` jobs, latest first, without jobs of flow runs.
select last.id, state.state, state.attempt, last.created, ended.at, last.key
  from (select latest.id, latest.created, latest.key
          from (select jobs.id, jobs.task, jobs.run, jobs.created, jobs.key
                  from rota.jobs
                 order by jobs.id desc
                 limit %(scan_limit)s::int) as latest
         where latest.task = %(task)s::text
           and latest.run is null
         order by latest.id desc
         limit %(limit)s::int) as last
 cross join lateral (
       select found.state, found.attempt from rota.job_state as found where found.job = last.id offset 0) as state
  left join lateral (
       select outcomes.at from rota.outcomes where outcomes.job = last.id offset 0) as ended on true
 order by last.id desc
