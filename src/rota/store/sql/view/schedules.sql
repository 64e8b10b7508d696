-- Return schedules by name, one or those after a name and between two others, at most `limit`: definition, state,
-- whether a live worker has the target, and the latest tick.
with known_tasks as materialized (
    select distinct entry.task
      from rota.workers
     cross join lateral unnest(workers.tasks) as entry (task)
     where workers.state = 'active'
),
-- A flow's tasks have its name as prefix, which shows the flows that a worker has.
flows as materialized (
    select distinct substring(known_tasks.task from '^(.*)\.[^.]*$') as flow from known_tasks
)
select schedules.name, schedules.declared, schedules.kind, schedules.target, schedules.input, schedules.tenant,
       schedules.cron, schedules.tz, schedules.every, schedules.at, schedules.overlap, schedules.catch_up,
       schedules.at_most, schedules.grace, schedules.jitter, schedules.starts, schedules.ends, schedules.max_runs,
       schedules.pause_after, schedules.queue, schedules.state::text, schedules.reason, schedules.created,
       schedules.last_success, schedules.last_failure, schedules.failures, schedules.runs, schedules.missed,
       case schedules.kind when 'flow' then exists (select from flows where flows.flow = schedules.target)
                           else exists (select from known_tasks where known_tasks.task = schedules.target) end,
       schedules.anchor, schedules.next,
       case when schedules.max_runs is not null then greatest(schedules.max_runs - schedules.runs, 0) end,
       last.tick, last.state, last.reason, last.backfilled, last.at, last.host, last.pid, last.run,
       coalesce(outcomes.state, known.outcome)::text, coalesce(outcomes.at, known.ended)
  from rota.schedules
  left join lateral (
       select *
         from rota.ticks
        where ticks.schedule = schedules.name
          and not ticks.backfilled
        order by ticks.number desc, ticks.tick desc
        limit 1) as last on true
  left join rota.outcomes on outcomes.job = last.run
  -- The outcome in the tick is used only if the run has been removed; an existing run may have been retried since.
  left join lateral (
       select last.outcome, last.ended
        where not exists (select from rota.jobs where jobs.id = last.run)
          and not exists (select from rota.runs where runs.id = last.run)) as known on true
 where (%(name)s::text is null or schedules.name = %(name)s::text)
   and (%(tenant)s::text is null or schedules.tenant = %(tenant)s::text)
   and (%(state)s::text is null or schedules.state = %(state)s::rota.schedule_state)
   and (%(after)s::text is null or schedules.name > %(after)s::text)
   and schedules.name >= %(prefix)s::text
   and schedules.name < %(prefix_end)s::text
 order by schedules.name
 limit %(limit)s::int
