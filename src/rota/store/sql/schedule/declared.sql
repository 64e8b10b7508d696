-- Return the definition and state of schedules, and true if another worker is responsible for them: those of these
-- names, and all others that code has declared for these targets and that are not disabled. Locks nothing.
--
-- The newest live worker that declares a name is responsible for it. If `worker` is null, this worker is not
-- registered yet and is responsible itself. A schedule outside these names is left alone as long as a live worker
-- declares it.
with declaring as materialized (
    select each.name, max(workers.id) as worker
      from rota.workers
     cross join lateral unnest(workers.schedules) as each (name)
     where workers.state in ('active', 'draining')
     group by each.name
)
select schedules.name, schedules.declared, schedules.kind, schedules.target, schedules.input, schedules.tenant,
       schedules.cron, schedules.tz, schedules.every, schedules.at, schedules.overlap, schedules.catch_up,
       schedules.at_most, schedules.grace, schedules.jitter, schedules.starts, schedules.ends, schedules.max_runs,
       schedules.pause_after, schedules.queue, schedules.state::text,
       case when schedules.name = any(%(names)s::text[]) then coalesce(declaring.worker > %(worker)s::bigint, false)
            else declaring.worker is not null end
  from (select schedules.name from rota.schedules where schedules.name = any(%(names)s::text[])
         union
        select schedules.name
          from rota.schedules
         where schedules.declared
           and schedules.state <> 'disabled'
           and schedules.target = any(%(targets)s::text[])) as found
  join rota.schedules on schedules.name = found.name
  left join declaring on declaring.name = found.name
