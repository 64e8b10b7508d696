-- A worker begins: a fresh id per process start, never the host's name or the pid. What it knows is listed
-- where it is asked for with each claim, if it is too much to be sent with each.
with born as (
    insert into rota.workers (host, pid, version, queues, tasks, capacity)
    values (%(host)s, %(pid)s, %(version)s, %(queues)s::text[], %(tasks)s::text[], %(capacity)s)
    returning id
),
listed as (
    insert into rota.skills (worker, task, patient)
    select born.id, skill.task, skill.task <> all(%(impatient)s::text[])
      from born
     cross join unnest(%(skills)s::text[]) as skill (task)
)
select born.id from born
