-- Note what has been started by hand: so many ticks more, and the last run. It is not one of those the clock may start.
update rota.schedules
   set ticks = schedules.ticks + %(ticks)s::bigint, run = coalesce(%(run)s::bigint, schedules.run)
 where schedules.name = %(name)s::text
