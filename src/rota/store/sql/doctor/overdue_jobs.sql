-- Count the sleeping jobs that should have been woken `late_seconds` ago or more, up to 1,000. Return the count and the
-- longest delay in seconds.
select count(*)::int, max(late.seconds)
  from (select extract(epoch from rota.clock() - sleeping.wake_at)::float8 as seconds
          from rota.sleeping
         where sleeping.wake_at < rota.clock() - make_interval(secs => %(late_seconds)s::float8)
         order by sleeping.wake_at
         limit 1000) as late
