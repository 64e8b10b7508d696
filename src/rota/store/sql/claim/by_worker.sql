-- The claims this worker holds, by the database's account. One it does not know of is the echo of a
-- claim whose answer was lost.
select claims.id, claims.nonce, claims.jobs
  from rota.claims
 where claims.worker = %(worker)b::bigint
