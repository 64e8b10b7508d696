-- Return for each of these terms true if it is still held: this session holds the session lock (both halves of its key
-- match) in this database, the term is the last one and belongs to this instance, and the server accepts writes.
select given.name,
       not pg_is_in_recovery()
       and exists (select
                     from pg_catalog.pg_locks as held
                    where held.locktype = 'advisory'
                      and held.classid::bigint = %(namespace)s::bigint
                      and held.objid::bigint = given.session_lock::bigint & 4294967295
                      and held.objsubid = 2
                      and held.granted
                      and held.pid = pg_backend_pid()
                      and held.database = (select here.oid
                                             from pg_catalog.pg_database as here
                                            where here.datname = pg_catalog.current_database()))
       and exists (select
                     from rota.leaders
                    where leaders.name = given.name
                      and leaders.term = given.term
                      and leaders.instance = %(instance)s::uuid)
  from unnest(%(names)s::text[], %(session_locks)s::int[], %(terms)s::bigint[]) as given (name, session_lock, term)
