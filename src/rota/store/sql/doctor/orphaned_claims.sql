-- Jobs whose worker is gone, or has not been heard of for so many seconds, and nobody has taken them back.
select coalesce(sum(cardinality(claims.jobs)), 0)::int, min(claims.worker)
  from rota.claims
  left join rota.workers on workers.id = claims.worker
 where case when workers.state in ('active', 'draining')
            then workers.last_beat < rota.clock() - make_interval(secs => %(silent_seconds)s::float8)
            else coalesce(workers.ended < rota.clock() - make_interval(secs => %(silent_seconds)s::float8), true) end
