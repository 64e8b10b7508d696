-- Lock the schedules that are due, the first first, at most `limit`, of those whose target is known here and that are not
-- left to `others`; if there are `names`, of those alone. What somebody else has in hand is passed over. Answers each with
-- all it takes to decide what to do, and the time that it is.
select schedules.name, schedules.kind, schedules.target, schedules.input, schedules.cron, schedules.tz, schedules.every,
       schedules.at, schedules.overlap, schedules.catch_up, schedules.at_most, schedules.grace, schedules.jitter,
       schedules.ends, schedules.max_runs, schedules.pause_after, schedules.queue, schedules.anchor, schedules.next,
       schedules.queued, schedules.ticks, schedules.runs, schedules.run, rota.clock()
  from rota.schedules
 where schedules.state = 'active'
   and schedules.due <= rota.clock()
   and schedules.target = any(%(targets)s::text[])
   and schedules.name <> all(%(deferred)s::text[])
   and (%(names)s::text[] is null or schedules.name = any(%(names)s::text[]))
 order by schedules.due
 limit %(limit)s::int
   for update skip locked
