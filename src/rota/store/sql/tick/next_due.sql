-- In how many seconds the next schedule is due whose target is known here and that is not left to `others`; null: there
-- is none.
select (select extract(epoch from schedules.due - rota.clock())::float8
          from rota.schedules
         where schedules.state = 'active'
           and schedules.target = any(%(targets)s::text[])
           and schedules.name <> all(%(deferred)s::text[])
         order by schedules.due
         limit 1)
