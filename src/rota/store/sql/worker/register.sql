-- Register a worker. Every process start gets a new id; host name and pid do not identify a worker. If it has too many
-- tasks to send with every claim, they are stored in `worker_tasks`. The other workers are notified, so that they
-- observe it.
with born as (
    insert into rota.workers (host, pid, version, engine, queues, tasks, schedules, capacity, metadata)
    values (%(host)s, %(pid)s, %(version)s, %(rota_version)s, %(queues)s::text[], %(tasks)s::text[],
            %(schedules)s::text[], %(capacity)s, %(metadata)s::json)
    returning id
),
listed as (
    insert into rota.worker_tasks (worker, task, prefetchable)
    select born.id, entry.task, entry.task <> all(%(no_prefetch)s::text[])
      from born
     cross join unnest(%(listed_tasks)s::text[]) as entry (task)
)
select born.id
  from born
 where case when %(notify)s::boolean then pg_notify('rota.wake', '!worker')::text is not null else true end
