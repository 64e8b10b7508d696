-- Record a manual start: add to the number of ticks and set the latest run. It does not count against `max_runs`.
update rota.schedules
   set ticks = schedules.ticks + %(ticks)s::bigint, run = coalesce(%(run)s::bigint, schedules.run)
 where schedules.name = %(name)s::text
