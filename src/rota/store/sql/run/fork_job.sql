-- Run a task's job once more from one of its steps on. Answers the new run, null where there is none, and its queue.
select forked.forked, forked.queue
  from rota.fork_job(%(run)s::bigint, %(step)s::text, %(args)s::text::json, %(trace)s::text) as forked
