-- Return the desired number of workers of each queue with the figures behind it; or of one queue, even if it is
-- unknown.
select scaled.queue, scaled.desired, scaled.workers, scaled.backlog, scaled.oldest_seconds, scaled.running,
       scaled.arrival_rate,
       scaled.mean_seconds, scaled.slots
  from rota.autoscale(
       target => %(target)s::float8, min_workers => %(min_workers)s::int, max_workers => %(max_workers)s::int,
       concurrency => %(concurrency)s::int, only_queue => %(queue)s::text) as scaled
 limit 200
