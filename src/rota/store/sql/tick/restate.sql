-- Say anew what became of ticks that had to wait.
update rota.ticks
   set state = given.state, why = given.why, at = %(at)s::timestamptz, host = %(host)s, pid = %(pid)s
  from unnest(%(names)s::text[], %(ticks)s::timestamptz[], %(states)s::text[], %(whys)s::text[])
       as given (name, tick, state, why)
 where ticks.schedule = given.name
   and ticks.tick = given.tick
