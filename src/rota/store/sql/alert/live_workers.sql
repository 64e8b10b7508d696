-- Workers that are there: what they serve, and since when.
select workers.queues, workers.started
  from rota.workers
 where workers.state = 'active'
