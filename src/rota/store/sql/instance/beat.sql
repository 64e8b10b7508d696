-- Record a heartbeat of an instance, with the services it declares and those it runs. Return all live instances,
-- including this one, with the seconds since their last heartbeat. Left out are expired instances, and those of workers
-- that were declared dead since their last heartbeat. Delete instances that expired more than an hour ago; skip locked
-- rows.
with forgotten as (
    delete from rota.instances
     where instances.id in (select expired.id
                              from rota.instances as expired
                             where expired.expires < rota.clock() - interval '1 hour'
                               and expired.id <> %(instance)s::uuid
                               for update skip locked)
),
mine as (
    insert into rota.instances (id, host, pid, label, version, expires, services, running)
    values (%(instance)s::uuid, %(host)s, %(pid)s, %(label)s, %(version)s,
            rota.clock() + make_interval(secs => %(lease)s::float8), %(services)s::text[], %(running)s::text[])
    on conflict (id) do update
       set last_seen = rota.clock(), expires = excluded.expires, services = excluded.services,
           running = excluded.running
    returning instances.id, instances.services, instances.running
)
select mine.id, mine.services, mine.running, 0::float8 from mine
 union all
select instances.id, instances.services, instances.running,
       extract(epoch from rota.clock() - instances.last_seen)::float8
  from rota.instances
 where instances.expires > rota.clock()
   and instances.id <> %(instance)s::uuid
   and not exists (select
                     from rota.workers
                    where workers.host = instances.host
                      and workers.pid = instances.pid
                      and workers.state = 'dead'
                      and workers.ended > instances.last_seen)
