-- Sleeping jobs whose time came so many seconds ago, and nobody has woken them: how many, up to a thousand, and by how
-- much the first is late.
select count(*)::int, max(late.seconds)
  from (select extract(epoch from rota.clock() - asleep.wake)::float8 as seconds
          from rota.asleep
         where asleep.wake < rota.clock() - make_interval(secs => %(late)s::float8)
         order by asleep.wake
         limit 1000) as late
