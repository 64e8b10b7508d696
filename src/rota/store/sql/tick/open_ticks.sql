-- Schedules with runs that have ended, and nobody has noted it; and whether there are runs at all whose end is not noted.
select array(select distinct ticks.schedule
               from rota.ticks
              where ticks.run is not null
                and ticks.ended is null
                and (exists (select from rota.outcomes where outcomes.job = ticks.run)
                     or not (exists (select from rota.jobs where jobs.id = ticks.run)
                             or exists (select from rota.runs where runs.id = ticks.run)))
              limit %(limit)s::int),
       exists (select from rota.ticks where ticks.run is not null and ticks.ended is null)
