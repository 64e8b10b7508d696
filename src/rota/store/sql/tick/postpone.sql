-- Postpone due schedules by some seconds, each with its reason. Ticks missed by then are caught up.
update rota.schedules
   set due = rota.clock() + make_interval(secs => %(seconds)s::float8), reason = coalesce(given.reason,
       schedules.reason)
  from unnest(%(names)s::text[], %(reasons)s::text[]) as given (name, reason)
 where schedules.name = given.name
   and schedules.state = 'active'
   and schedules.due <= rota.clock()
