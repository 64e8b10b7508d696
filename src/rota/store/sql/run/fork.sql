-- Run a flow once more from a task on. Answers the new run, null where there is none, and the queues with news.
select forked.forked, forked.queues from rota.fork(%(run)s::bigint, %(task)s::text, %(trace)s::text) as forked
