-- Lock claims in the order of their ids, before a job of them is moved or starts a run.
--
-- This is a separate statement, so that the following statements of the transaction read the claims and cancel requests
-- as of the locks.
select claims.id
  from rota.claims
 where claims.id = any(%(claims)s::bigint[])
   and claims.worker = %(worker)b::bigint
 order by claims.id
   for no key update
