-- Sleeping jobs whose time came so many seconds ago, and nobody has woken them: how many, up to a thousand, and by how
-- much the first is late.
select count(*)::int, max(late.seconds)
  from (select extract(epoch from rota.clock() - sleeping.wake_at)::float8 as seconds
          from rota.sleeping
         where sleeping.wake_at < rota.clock() - make_interval(secs => %(late_seconds)s::float8)
         order by sleeping.wake_at
         limit 1000) as late
