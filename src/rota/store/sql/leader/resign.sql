-- End a term. It stays the last one until the next begins. A row that another transaction has locked is skipped: the
-- term then ends when the session lock is released or the lease expires.
with ours as materialized (
    select leaders.name
      from rota.leaders
     where leaders.name = %(name)s::text
       and leaders.term = %(term)s::bigint
       and leaders.instance = %(instance)s::uuid
       for no key update skip locked
)
update rota.leaders
   set instance = null, expires = null
  from ours
 where leaders.name = ours.name
