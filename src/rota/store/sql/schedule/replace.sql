-- Replace the definition and the position of a schedule.
update rota.schedules
   set declared = %(declared)s, kind = %(kind)s, target = %(target)s, input = %(input)s::json, tenant = %(tenant)s,
       cron = %(cron)s, tz = %(tz)s, every = %(every)s::float8, at = %(at)s::timestamptz, overlap = %(overlap)s,
       catch_up = %(catch_up)s, at_most = %(at_most)s, grace = %(grace)s::float8, jitter = %(jitter)s::float8,
       starts = %(starts)s::timestamptz, ends = %(ends)s::timestamptz, max_runs = %(max_runs)s::bigint,
       pause_after = %(pause_after)s::int, queue = %(queue)s, anchor = %(anchor)s::timestamptz,
       next = %(next)s::timestamptz, due = %(due)s::timestamptz, state = %(state)s::rota.schedule_state,
       reason = %(reason)s,
       paused_reason = null
 where schedules.name = %(name)s::text
