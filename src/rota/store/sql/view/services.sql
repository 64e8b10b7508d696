-- Return services: the instance that runs each, the instances ready to take over, and the latest iteration. Includes
-- services that have never run but that a live instance declares.
select known.name, services.every, leads.host, leads.pid, leads.since,
       array(select instances.host || ':' || instances.pid
               from rota.instances
              where known.name = any(instances.services)
                and instances.id is distinct from leads.instance
                and instances.expires > rota.clock()
              order by instances.started, instances.id) as standing_by,
       last.number, last.started, last.ended, last.outcome, last.error,
       coalesce(services.failures, 0) as failures,
       case when last.outcome in ('succeeded', 'failed')
            then greatest(services.started + make_interval(secs => services.every), services.retry_at)
            when last.ended is not null
            then greatest(last.ended, services.retry_at)  -- an interrupted iteration is repeated at once
       end as due
  from (select services.name from rota.services
         union
        select unnest(instances.services) from rota.instances where instances.expires > rota.clock()) as known
  left join rota.services on services.name = known.name
  left join rota.iterations as last on last.service = known.name and last.number = services.iteration
  left join lateral (
       select leaders.instance, leaders.host, leaders.pid, leaders.since
         from rota.leaders
        where leaders.name = %(leader_prefix)s::text || known.name
          and leaders.instance is not null
          and (leaders.expires > rota.clock()
               or leaders.expires is null
                  and exists (select
                                from pg_catalog.pg_locks as held
                               where held.locktype = 'advisory'
                                 and held.classid::bigint = %(namespace)s::bigint
                                 and held.objid::bigint = leaders.session_lock::bigint & 4294967295
                                 and held.objsubid = 2
                                 and held.granted
                                 and held.database = (select here.oid
                                                        from pg_catalog.pg_database as here
                                                       where here.datname = pg_catalog.current_database())))
       ) as leads on true
 where %(name)s::text is null or known.name = %(name)s::text
 order by known.name
