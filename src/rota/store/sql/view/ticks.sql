-- Return the latest ticks of a schedule, latest first, with the outcomes of their runs. A tick that was queued and is
-- not the queued one any more was skipped.
select ticks.tick,
       case when ticks.state = 'queued' and ticks.tick is distinct from schedules.queued
            then 'skipped' else ticks.state end,
       ticks.reason, ticks.backfilled, ticks.at, ticks.host, ticks.pid, ticks.run,
       coalesce(outcomes.state, known.outcome)::text, coalesce(outcomes.at, known.ended)
  from rota.ticks
  join rota.schedules on schedules.name = ticks.schedule
  left join rota.outcomes on outcomes.job = ticks.run
  -- The outcome in the tick is used only if the run has been removed; an existing run may have been retried since.
  left join lateral (
       select ticks.outcome, ticks.ended
        where not exists (select from rota.jobs where jobs.id = ticks.run)
          and not exists (select from rota.runs where runs.id = ticks.run)) as known on true
 where ticks.schedule = %(name)s::text
 order by ticks.number desc, ticks.tick desc
 limit %(limit)s::int
