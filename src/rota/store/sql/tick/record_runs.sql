-- Record the runs that ticks have started.
update rota.ticks
   set state = 'started', reason = case when ticks.state = 'started' then ticks.reason end, run = given.run,
       at = coalesce(%(at)s::timestamptz, rota.clock()), host = %(host)s, pid = %(pid)s,
       backfilled = ticks.backfilled or %(backfilled)s::boolean
  from unnest(%(names)s::text[], %(ticks)s::timestamptz[], %(runs)s::bigint[]) as given (name, tick, run)
 where ticks.schedule = given.name
   and ticks.tick = given.tick
