-- Lock claims in the order of their ids, before jobs are taken from the code that runs them.
--
-- Stronger than `claim/lock`: FOR UPDATE also waits for a user's transaction that has locked the claim FOR KEY SHARE.
select claims.id
  from rota.claims
 where claims.id = any(%(claims)s::bigint[])
   and claims.worker = %(worker)b::bigint
 order by claims.id
   for update
