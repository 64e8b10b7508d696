-- Return the other live workers: the heartbeat counter of each, and true if its connection still holds its session
-- lock. Null: it has no session lock, because it connects through a pooler.
select workers.id, workers.beats,
       case when workers.session_lock is not null then
            workers.session_lock in (
                select held.objid::bigint::int
                  from pg_catalog.pg_locks as held
                 where held.locktype = 'advisory'
                   and held.classid = %(namespace)s::int::oid
                   and held.objsubid = 2
                   and held.granted
                   and held.database = (
                       select here.oid from pg_catalog.pg_database as here
                        where here.datname = pg_catalog.current_database()))
       end
  from rota.workers
 where workers.state in ('active', 'draining')
   and workers.id <> %(worker)s::bigint
