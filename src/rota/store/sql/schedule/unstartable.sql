-- Return due schedules that cannot be started, because neither this process nor a live worker has their target. At
-- most a hundred.
select schedules.name, schedules.kind, schedules.target
  from rota.schedules
 where schedules.state = 'active'
   and schedules.due <= rota.clock()
   and schedules.target <> all(%(targets)s::text[])
   and not exists (
       select
         from rota.workers
        cross join lateral unnest(workers.tasks) as known (task)
        where workers.state = 'active'
          and schedules.target = case schedules.kind when 'flow' then substring(known.task from '^(.*)\.[^.]*$')
                                                     else known.task end)
 order by schedules.due
 limit 100
