-- End a term. It stays the last one until there is another. A row that somebody keeps locked is left as it is: its seat
-- is given up, or it runs out.
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
