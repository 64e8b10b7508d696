-- Return the names of due schedules, earliest first, at most `limit`: those with a target that this process has,
-- without `deferred` ones.
select schedules.name
  from rota.schedules
 where schedules.state = 'active'
   and schedules.due <= rota.clock()
   and schedules.target = any(%(targets)s::text[])
   and schedules.name <> all(%(deferred)s::text[])
 order by schedules.due
 limit %(limit)s::int
