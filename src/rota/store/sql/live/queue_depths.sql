-- Return the queued jobs of each queue that is not empty: the number, whether it is exact, and the age of the oldest
-- in seconds.
select depths.queue, depths.queued, depths.exact, depths.oldest_seconds
  from rota.queue_depths() as depths
