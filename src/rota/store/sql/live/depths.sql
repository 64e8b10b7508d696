-- What waits in each queue that is not empty: how many jobs, exactly or about, and for how many seconds the oldest.
select depths.queue, depths.ready, depths.exact, depths.oldest
  from rota.depths() as depths
