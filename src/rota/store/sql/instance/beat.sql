-- An instance says that it is there, which services it knows and which it runs. Answers all that are there, itself among
-- them. Those that have not been heard of for an hour are forgotten.
with forgotten as (
    delete from rota.instances
     where instances.id in (select gone.id
                              from rota.instances as gone
                             where gone.expires < rota.clock() - interval '1 hour'
                               and gone.id <> %(instance)s::uuid
                               for update skip locked)
),
mine as (
    insert into rota.instances (id, host, pid, label, version, expires, services, running)
    values (%(instance)s::uuid, %(host)s, %(pid)s, %(label)s, %(version)s,
            rota.clock() + make_interval(secs => %(lease)s::float8), %(services)s::text[], %(running)s::text[])
    on conflict (id) do update
       set seen = rota.clock(), expires = excluded.expires, services = excluded.services, running = excluded.running
    returning instances.id, instances.services, instances.running
)
select mine.id, mine.services, mine.running from mine
 union all
select instances.id, instances.services, instances.running
  from rota.instances
 where instances.expires > rota.clock()
   and instances.id <> %(instance)s::uuid
