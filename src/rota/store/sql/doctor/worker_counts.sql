-- Workers that are there, how many of them have not been heard of for so many seconds, and versions of Rota they run.
select count(*)::int,
       (count(*) filter (where workers.last_beat < rota.clock() - make_interval(secs => %(silent_seconds)s::float8)))::int,
       coalesce(array_agg(distinct workers.engine), '{}'),
       (select count(*)::int from rota.quarantine)
  from rota.workers
 where workers.state in ('active', 'draining')
