-- Return the advisory locks of this database, held and awaited. The session lock of a leader or a worker is shown with
-- its name. Sessions of other roles are shown only to roles that may see them.
select held.objsubid = 2 as pair, held.classid::bigint as space,
       held.objid::bigint - case when held.objid::bigint > 2147483647 and held.objsubid = 2 then 4294967296
       else 0 end as key,
       case when held.objsubid <> 2 then null
            when held.classid::bigint = %(leader)s::bigint then
                 (select leaders.name
                    from rota.leaders
                   where leaders.session_lock::bigint & 4294967295 = held.objid::bigint
                     and leaders.instance is not null
                     and leaders.expires is null
                   limit 1)
            when held.classid::bigint = %(worker)s::bigint then
                 (select workers.id::text
                    from rota.workers
                   where workers.session_lock::bigint & 4294967295 = held.objid::bigint
                     and workers.state in ('active', 'draining')
                   limit 1)
       end as whose,
       held.mode = 'ExclusiveLock' as exclusive, held.granted, held.pid, coalesce(activity.application_name,
       '') as application,
       activity.usename::text as user, host(activity.client_addr) as address, activity.state,
       extract(epoch from rota.clock() - activity.state_change)::float8 as since,
       extract(epoch from rota.clock() - activity.backend_start)::float8 as connected
  from pg_catalog.pg_locks as held
  left join pg_catalog.pg_stat_activity as activity on activity.pid = held.pid
 where held.locktype = 'advisory'
   and held.database = (select here.oid from pg_catalog.pg_database as here
                        where here.datname = pg_catalog.current_database())
 order by held.objsubid desc, held.classid, held.objid, held.granted desc, held.pid
