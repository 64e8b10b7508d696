-- One worker, and for how many seconds it has not been heard of; no row: it has left.
select workers.id, workers.host, workers.pid,
       extract(epoch from rota.clock() - workers.beat)::float8 as silent
  from rota.workers
 where workers.id = %(worker)s::bigint
