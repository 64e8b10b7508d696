-- Return one worker, the seconds since its last heartbeat, and the number of jobs it holds. No row: it is unknown or
-- was deleted.
select workers.id, workers.host, workers.pid, workers.state::text,
       extract(epoch from rota.clock() - workers.last_beat)::float8 as silent,
       (select coalesce(sum(cardinality(claims.jobs)), 0)
          from rota.claims
         where claims.worker = workers.id)::bigint as held
  from rota.workers
 where workers.id = %(worker)s::bigint
