-- Leave schedules that are due for so many seconds, each for its reason; what they have missed by then is caught up with.
update rota.schedules
   set due = rota.clock() + make_interval(secs => %(seconds)s::float8), reason = coalesce(given.reason, schedules.reason)
  from unnest(%(names)s::text[], %(reasons)s::text[]) as given (name, reason)
 where schedules.name = given.name
   and schedules.state = 'active'
   and schedules.due <= rota.clock()
