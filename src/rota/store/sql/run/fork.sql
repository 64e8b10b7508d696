-- Run a flow again from a task on, as a new run. Returns the new run, null if there is no such task, and the queues
-- that received jobs.
select forked.forked, forked.queues from rota.fork(%(run)s::bigint, %(task)s::text, %(trace)s::text) as forked
