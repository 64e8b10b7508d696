-- Return the claims that this worker holds. If the worker does not know one of them, the answer to that claim was lost.
select claims.id, claims.nonce, claims.jobs
  from rota.claims
 where claims.worker = %(worker)b::bigint
