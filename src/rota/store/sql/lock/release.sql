-- Release a lock or a permit. Returns true if it was held until now, and true if a client waits for a notification. No
-- row: another instance holds it.
--
-- A repeated call is correct: as long as the row has this token, only this holder can have released it. An expired
-- lock is left unchanged.
with held as materialized (
    select locks.instance is null or locks.expires > rota.clock() as held, locks.awaited_since
      from rota.locks
     where locks.name = %(name)s::text
       and locks.slot = %(permit)s::int
       and locks.token = %(token)s::bigint
       for no key update
)
update rota.locks
   set instance = case when not held.held then locks.instance end, awaited_since = null
  from held
 where locks.name = %(name)s::text
   and locks.slot = %(permit)s::int
   and locks.token = %(token)s::bigint
returning held.held, held.awaited_since is not null
