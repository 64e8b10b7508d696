-- Count the jobs held by workers that have been gone or without a heartbeat for `silent_seconds`, with one such worker.
select coalesce(sum(cardinality(claims.jobs)), 0)::int, min(claims.worker)
  from rota.claims
  left join rota.workers on workers.id = claims.worker
 where case when workers.state in ('active', 'draining')
            then workers.last_beat < rota.clock() - make_interval(secs => %(silent_seconds)s::float8)
            else coalesce(workers.ended < rota.clock() - make_interval(secs => %(silent_seconds)s::float8), true) end
