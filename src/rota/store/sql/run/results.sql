-- Return the results of the final tasks of a flow's run: those with no successor but the run itself. Tasks that run
-- only after a failure are excluded.
select job.task, outcome.state::text, outcome.result
  from rota.runs as run
 cross join lateral unnest(run.jobs) with ordinality as member (job, number)
  join rota.jobs as job on job.id = member.job
  left join rota.outcomes as outcome on outcome.job = job.id
 where run.id = %(run)s::bigint
   and run.id = any(job.successors)
   and job.rule <> 'any_failed'
 order by member.number
