-- Return schedules with at least one failure in a row: those with `min_failures` or more, most failures first, at most
-- 100; at most 100 that are paused; and those with an open alert. `paused` is true if the failures were the reason of
-- the pause.
with bad as materialized (
    (select schedules.name
       from rota.schedules
      where schedules.failures >= %(min_failures)s::int
        and schedules.failures > 0
      order by schedules.failures desc
      limit 100)
     union
    (select schedules.name
       from rota.schedules
      where schedules.state = 'paused'
        and schedules.failures > 0
      order by schedules.name
      limit 100)
     union
    select alerts.subject
      from rota.alerts
     where alerts.kind = 'schedule fails'
       and alerts.cleared is null
)
select found.name, found.failures, found.paused, found.run
  from bad
 cross join lateral (
       select schedules.name, schedules.failures, schedules.run,
              schedules.state = 'paused' and schedules.reason like '%% failures in a row' as paused
         from rota.schedules
        where schedules.name = bad.name
          and schedules.failures > 0
       offset 0
       ) as found
