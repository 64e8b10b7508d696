-- Count the active workers that serve this queue and have this task.
select count(*)
  from rota.workers
 where workers.state = 'active'
   and %(queue)s::text = any(workers.queues)
   and %(task)s::text = any(workers.tasks)
