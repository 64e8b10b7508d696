-- Update the states of ticks that were queued.
update rota.ticks
   set state = given.state, reason = given.reason, at = %(at)s::timestamptz, host = %(host)s, pid = %(pid)s
  from unnest(%(names)s::text[], %(ticks)s::timestamptz[], %(states)s::text[], %(reasons)s::text[])
       as given (name, tick, state, reason)
 where ticks.schedule = given.name
   and ticks.tick = given.tick
