-- How many workers each queue wants, and by what figures; or one queue, known or not.
select scaled.queue, scaled.wanted, scaled.workers, scaled.backlog, scaled.oldest, scaled.running, scaled.arrivals,
       scaled.service, scaled.places
  from rota.autoscale(
       target => %(target)s::float8, fewest => %(fewest)s::int, most => %(most)s::int,
       concurrency => %(concurrency)s::int, only_queue => %(queue)s::text) as scaled
 limit 200
