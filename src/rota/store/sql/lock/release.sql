-- Let go of a lock or a permit. Answers whether it was held until now, and whether somebody waits to be told. No row:
-- it has passed to somebody else.
--
-- To say so twice is no mistake: while the token is ours, it was we who let go. One that has run out stays as it is.
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
