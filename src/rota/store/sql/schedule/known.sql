-- Which ticks of a schedule from one time until before another have had a run, or wait for one; and until when there may
-- have been others that are not written down any more, since only the last thousand are kept (null: there were none).
select array(select ticks.tick
               from rota.ticks
              where ticks.schedule = %(name)s::text
                and ticks.tick >= %(begin)s::timestamptz
                and ticks.tick < %(end)s::timestamptz
                and (ticks.run is not null or ticks.state = 'queued')),
       (select case when oldest.number > 1 then oldest.at end
          from rota.ticks as oldest
         where oldest.schedule = %(name)s::text
           and not oldest.backfilled
         order by oldest.number
         limit 1)
