-- Lock due schedules, earliest first, at most `limit`: those with a target that this process has, without `deferred`
-- ones; only those in `names`, if given. Schedules that another transaction has locked are skipped. Returns their
-- definitions and positions, and the current time.
select schedules.name, schedules.declared, schedules.kind, schedules.target, schedules.input, schedules.tenant,
       schedules.cron, schedules.tz, schedules.every, schedules.at, schedules.overlap, schedules.catch_up,
       schedules.at_most, schedules.grace, schedules.jitter, schedules.starts, schedules.ends, schedules.max_runs,
       schedules.pause_after, schedules.queue, schedules.state::text, schedules.reason, schedules.paused_reason,
       schedules.anchor, schedules.next, schedules.due, schedules.queued, schedules.ticks, schedules.runs, schedules.run,
       rota.clock()
  from rota.schedules
 where schedules.state = 'active'
   and schedules.due <= rota.clock()
   and schedules.target = any(%(targets)s::text[])
   and schedules.name <> all(%(deferred)s::text[])
   and (%(names)s::text[] is null or schedules.name = any(%(names)s::text[]))
 order by schedules.due
 limit %(limit)s::int
   for update skip locked
