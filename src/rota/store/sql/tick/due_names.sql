-- The names of schedules that are due, the first first, at most `limit`, of those whose target is known here and that are
-- not left to `others`.
select schedules.name
  from rota.schedules
 where schedules.state = 'active'
   and schedules.due <= rota.clock()
   and schedules.target = any(%(targets)s::text[])
   and schedules.name <> all(%(deferred)s::text[])
 order by schedules.due
 limit %(limit)s::int
