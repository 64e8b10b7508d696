-- Lock these claims in the order of their ids, before a move that takes jobs out of them.
--
-- A statement of its own: what follows in the transaction then reads the claims, and wishes to
-- cancel, as they are under the lock.
select claims.id
  from rota.claims
 where claims.id = any(%(claims)s::bigint[])
   and claims.worker = %(worker)b::bigint
 order by claims.id
   for no key update
