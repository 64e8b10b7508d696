-- Return the ticks of a schedule within a period that have a run or are queued; and the time before which ticks may
-- have been deleted, because only the latest thousand are kept (null: none were deleted). Older ticks with an open run
-- are kept longer, so they give no information about their neighbours.
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
