-- One worker, for how many seconds it has not been heard of, and how many jobs it holds; no row: it is not known, or
-- not any more.
select workers.id, workers.host, workers.pid, workers.state::text,
       extract(epoch from rota.clock() - workers.last_beat)::float8 as silent,
       (select coalesce(sum(cardinality(claims.jobs)), 0)
          from rota.claims
         where claims.worker = workers.id)::bigint as held
  from rota.workers
 where workers.id = %(worker)s::bigint
