-- Lock these claims against everybody, before a move that takes jobs away from whoever runs them.
--
-- Stronger than hold: it also waits for a transaction of the user's that has pinned the claim.
select claims.id
  from rota.claims
 where claims.id = any(%(claims)s::bigint[])
   and claims.worker = %(worker)b::bigint
 order by claims.id
   for update
