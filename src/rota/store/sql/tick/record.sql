-- Insert ticks; existing ones are left unchanged. Returns the new ones. Beyond a thousand ticks of a schedule the
-- oldest are deleted, except a queued one and those with an open run.
with given as (
    select * from unnest(%(names)s::text[], %(ticks)s::timestamptz[], %(numbers)s::bigint[], %(states)s::text[],
                         %(reasons)s::text[], %(backfilled)s::boolean[])
             as given (name, tick, number, state, reason, backfilled)
),
old as (
    delete from rota.ticks
     using (select given.name, max(given.number) as number, max(schedules.queued) as queued
              from given
              join rota.schedules on schedules.name = given.name
             group by given.name) as last
     where ticks.schedule = last.name
       and ticks.number <= last.number - 1000
       and ticks.tick is distinct from last.queued
       and (ticks.run is null or ticks.ended is not null)
)
insert into rota.ticks (schedule, tick, number, state, reason, backfilled, at, host, pid)
select given.name, given.tick, given.number, given.state, given.reason, given.backfilled,
       coalesce(%(at)s::timestamptz, rota.clock()), %(host)s, %(pid)s
  from given
on conflict (schedule, tick) do nothing
returning ticks.schedule, ticks.tick
