-- Return the number of live workers, how many of them had no heartbeat for `silent_seconds`, their versions of Rota,
-- and the number of quarantined jobs.
select count(*)::int,
       (count(*)
           filter (where workers.last_beat < rota.clock() - make_interval(secs => %(silent_seconds)s::float8)))::int,
       coalesce(array_agg(distinct workers.engine), '{}'),
       (select count(*)::int from rota.quarantine)
  from rota.workers
 where workers.state in ('active', 'draining')
