-- Return the queues and start times of active workers.
select workers.queues, workers.started
  from rota.workers
 where workers.state = 'active'
