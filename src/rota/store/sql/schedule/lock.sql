-- Lock schedules in the order of names. Returns their definitions and positions.
select schedules.name, schedules.declared, schedules.kind, schedules.target, schedules.input, schedules.tenant,
       schedules.cron, schedules.tz, schedules.every, schedules.at, schedules.overlap, schedules.catch_up,
       schedules.at_most, schedules.grace, schedules.jitter, schedules.starts, schedules.ends, schedules.max_runs,
       schedules.pause_after, schedules.queue, schedules.state::text, schedules.reason, schedules.paused_reason,
       schedules.anchor, schedules.next, schedules.due, schedules.queued, schedules.ticks, schedules.runs, schedules.run,
       rota.clock()
  from rota.schedules
 where schedules.name = any(%(names)s::text[])
 order by schedules.name
   for update
