-- Which ticks of a schedule from one time until before another have had a run, or wait for one; and until when there may
-- have been others that are not written down any more, since only the last thousand are kept (null: there were none).
-- One whose run is still open is kept for longer, and says nothing about its neighbours.
select array(select ticks.tick
               from rota.ticks
              where ticks.schedule = schedules.name
                and ticks.tick >= %(begin)s::timestamptz
                and ticks.tick < %(end)s::timestamptz
                and (ticks.run is not null or ticks.state = 'queued')),
       case when schedules.ticks > 1000 then
            (select oldest.at
               from rota.ticks as oldest
              where oldest.schedule = schedules.name
                and oldest.number > schedules.ticks - 1000
              order by oldest.number, oldest.at
              limit 1) end
  from rota.schedules
 where schedules.name = %(name)s::text
