-- A worker begins: a fresh id per process start, never the host's name or the pid.
insert into rota.workers (host, pid, version, queues, tasks, capacity)
values (%(host)s, %(pid)s, %(version)s, %(queues)s::text[], %(tasks)s::text[], %(capacity)s)
returning id
