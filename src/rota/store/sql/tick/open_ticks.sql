-- Return schedules with runs that have finished but are not recorded as such; and true if there are any runs with an
-- unrecorded end.
select array(select distinct ticks.schedule
               from rota.ticks
              where ticks.run is not null
                and ticks.ended is null
                and (exists (select from rota.outcomes where outcomes.job = ticks.run)
                     or not (exists (select from rota.jobs where jobs.id = ticks.run)
                             or exists (select from rota.runs where runs.id = ticks.run)))
              limit %(limit)s::int),
       exists (select from rota.ticks where ticks.run is not null and ticks.ended is null)
