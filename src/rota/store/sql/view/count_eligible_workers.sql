-- How many workers that are there would take a job of this task from this queue.
select count(*)
  from rota.workers
 where workers.state = 'active'
   and %(queue)s::text = any(workers.queues)
   and %(task)s::text = any(workers.tasks)
