-- Schedules that should have ticked so many seconds ago or more, the latest first, at most a hundred, and as many that were
-- put off since: by how much each is late, whether a worker that is there knows what it starts, and why it was put off, if
-- it was.
select late.name, late.target, extract(epoch from rota.clock() - late.due)::float8,
       exists (select
                 from rota.workers
                where workers.state = 'active'
                  and (late.target = any(workers.tasks)
                       -- A worker knows a flow by its tasks, which are called after it.
                       or late.kind = 'flow' and exists (select
                                                           from unnest(workers.tasks) as skill (task)
                                                          where starts_with(skill.task, late.target || '.')))),
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
