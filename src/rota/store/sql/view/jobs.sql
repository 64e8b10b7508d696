-- The jobs of a run in the order of its graph, so many of them after the first so many; what went in and came out only
-- where asked.
select job.id, job.task, job.queue, state.state, state.attempt, state.worker, state.since, job.rule::text,
       array(select child.job from unnest(job.children) as child (job) where child.job <> run.id),
       array(select input.value::bigint from json_each_text(job.inputs) as input),
       outcome.at, outcome.took, outcome.error, nullif(asleep.wake, 'infinity'), asleep.signals, progress.done,
       progress.total,
       case when %(whole)s::boolean then job.args end, case when %(whole)s::boolean then outcome.result end
  from rota.runs as run
 cross join lateral unnest(run.jobs[%(after)s::int + 1:least(%(after)s::bigint + %(limit)s::int, 2147483647)::int])
                    with ordinality as member (job, number)
  join rota.jobs as job on job.id = member.job
  join rota.job_state as state on state.job = job.id
  left join rota.outcomes as outcome on outcome.job = job.id
  left join rota.asleep on asleep.job = job.id
  left join rota.progress on progress.job = job.id
 where run.id = %(run)s::bigint
 order by member.number
