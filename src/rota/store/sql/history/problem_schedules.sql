-- Return schedules with problems, at most `limit` for each of these:
--
--   late              due, or postponed since, more than `late_seconds` ago; latest first
--   missed, refused   ticks within a day, with their number
--   failing, stopped  failures in a row, with their number; stopped if the schedule is paused
(select schedules.name, 'late' as trouble, schedules.due as since, 1::bigint as many
   from rota.schedules
  where schedules.state = 'active'
    and schedules.due < rota.clock() - make_interval(secs => %(late_seconds)s::float8)
  order by schedules.due
  limit %(limit)s::int)
 union all
(select schedules.name, 'late', schedules.next, 1
   from rota.schedules
  where schedules.state = 'active'
    and schedules.reason is not null
    and schedules.next < rota.clock() - make_interval(secs => %(late_seconds)s::float8)
    and schedules.due >= rota.clock() - make_interval(secs => %(late_seconds)s::float8)
  order by schedules.next
  limit %(limit)s::int)
 union all
(select lost.schedule, lost.state, max(lost.at), count(*)
   from (select ticks.schedule, ticks.state, ticks.at
           from rota.ticks
          where ticks.state in ('missed', 'refused')
            and ticks.at > rota.clock() - interval '1 day'
          order by ticks.at desc
          limit 1000) as lost
  group by lost.schedule, lost.state
  order by max(lost.at) desc
  limit %(limit)s::int)
 union all
(select schedules.name, case when schedules.state = 'paused' then 'stopped' else 'failing' end, schedules.last_failure,
        schedules.failures
   from rota.schedules
  where schedules.failures > 0
  order by schedules.failures desc
  limit %(limit)s::int)
