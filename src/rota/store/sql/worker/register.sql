-- A worker begins: a fresh id per process start, never the host's name or the pid. What it knows is listed
-- where it is asked for with each claim, if it is too much to be sent with each. The others hear of it, so that
-- they have an eye on it.
with born as (
    insert into rota.workers (host, pid, version, engine, queues, tasks, schedules, capacity, metadata)
    values (%(host)s, %(pid)s, %(version)s, %(rota_version)s, %(queues)s::text[], %(tasks)s::text[],
            %(schedules)s::text[], %(capacity)s, %(metadata)s::json)
    returning id
),
listed as (
    insert into rota.worker_tasks (worker, task, prefetchable)
    select born.id, skill.task, skill.task <> all(%(no_prefetch)s::text[])
      from born
     cross join unnest(%(listed_tasks)s::text[]) as skill (task)
)
select born.id
  from born
 where case when %(notify)s::boolean then pg_notify('rota.wake', '!worker')::text is not null else true end
