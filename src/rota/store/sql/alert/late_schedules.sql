-- Return active schedules with a tick that is at least `late_seconds` late, latest first: at most 100 that are due, and
-- at most 100 that were postponed. The columns are the delay in seconds, true if an active worker has the target task
-- or flow, and the reason of the postponement, if any.
select late.name, late.target, extract(epoch from rota.clock() - late.due)::float8,
       exists (select
                 from rota.workers
                where workers.state = 'active'
                  and (late.target = any(workers.tasks)
                       -- The tasks of a flow are named `flow.task`.
                       or late.kind = 'flow' and exists (select
                                                           from unnest(workers.tasks) as known (task)
                                                          where starts_with(known.task, late.target || '.')))),
       late.reason
  from ((select schedules.name, schedules.kind, schedules.target, schedules.due, schedules.reason
           from rota.schedules
          where schedules.state = 'active'
            and schedules.due <= rota.clock() - make_interval(secs => %(late_seconds)s::float8)
          order by schedules.due
          limit 100)
         union all
        (select schedules.name, schedules.kind, schedules.target, schedules.next, schedules.reason
           from rota.schedules
          where schedules.state = 'active'
            and schedules.reason is not null
            and schedules.next <= rota.clock() - make_interval(secs => %(late_seconds)s::float8)
            and schedules.due > rota.clock() - make_interval(secs => %(late_seconds)s::float8)
          order by schedules.next
          limit 100)) as late
