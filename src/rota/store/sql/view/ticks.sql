-- The last ticks of a schedule, the last first, with what became of their runs. One that waited for a run to end and does not
-- any more was skipped.
select ticks.tick,
       case when ticks.state = 'queued' and ticks.tick is distinct from schedules.queued
            then 'skipped' else ticks.state end,
       ticks.why, ticks.backfilled, ticks.at, ticks.host, ticks.pid, ticks.run,
       case when outcomes.job is not null then outcomes.state
            -- It was begun again.
            when exists (select from rota.jobs where jobs.id = ticks.run)
              or exists (select from rota.runs where runs.id = ticks.run) then null
            else ticks.outcome end::text,
       case when outcomes.job is not null then outcomes.at
            when exists (select from rota.jobs where jobs.id = ticks.run)
              or exists (select from rota.runs where runs.id = ticks.run) then null
            else ticks.ended end
  from rota.ticks
  join rota.schedules on schedules.name = ticks.schedule
  left join rota.outcomes on outcomes.job = ticks.run
 where ticks.schedule = %(name)s::text
 order by ticks.number desc, ticks.tick desc
 limit %(limit)s::int
