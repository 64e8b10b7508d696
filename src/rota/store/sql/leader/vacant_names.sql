-- Return the names that appear to have no leader: never elected, resigned, lease expired, or session lock not held by
-- any session.
select given.name
  from unnest(%(names)s::text[], %(session_locks)s::int[]) as given (name, session_lock)
  left join rota.leaders on leaders.name = given.name
 where leaders.instance is null
    or leaders.expires <= rota.clock()
    or leaders.expires is null
   and not exists (select
                     from pg_catalog.pg_locks as held
                    where held.locktype = 'advisory'
                      and held.classid::bigint = %(namespace)s::bigint
                      and held.objid::bigint = given.session_lock::bigint & 4294967295
                      and held.objsubid = 2
                      and held.granted
                      and held.database = (select here.oid
                                             from pg_catalog.pg_database as here
                                            where here.datname = pg_catalog.current_database()))
