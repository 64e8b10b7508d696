-- Return the seconds until the next schedule is due, of those with a target that this process has, without `deferred`
-- ones; null if there is none.
select (select extract(epoch from schedules.due - rota.clock())::float8
          from rota.schedules
         where schedules.state = 'active'
           and schedules.target = any(%(targets)s::text[])
           and schedules.name <> all(%(deferred)s::text[])
         order by schedules.due
         limit 1)
