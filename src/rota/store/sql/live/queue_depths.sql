-- What waits in each queue that is not empty: how many jobs, exactly or about, and for how many seconds the oldest.
select depths.queue, depths.queued, depths.exact, depths.oldest_seconds
  from rota.queue_depths() as depths
