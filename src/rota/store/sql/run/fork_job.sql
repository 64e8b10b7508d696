-- Run a task's job again from one of its steps on, as a new run. Returns the new run, null if there is no such step,
-- and its queue.
select forked.forked, forked.queue
  from rota.fork_job(%(run)s::bigint, %(step)s::text, %(args)s::text::json, %(trace)s::text) as forked
