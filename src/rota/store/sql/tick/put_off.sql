-- Leave schedules that are due for so many seconds, each for its reason; what they have missed by then is caught up with.
update rota.schedules
   set due = rota.clock() + make_interval(secs => %(seconds)s::float8), why = coalesce(given.why, schedules.why)
  from unnest(%(names)s::text[], %(whys)s::text[]) as given (name, why)
 where schedules.name = given.name
   and schedules.state = 'active'
   and schedules.due <= rota.clock()
