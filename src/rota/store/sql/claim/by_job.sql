-- The claim that holds a job for this worker. No row: it has been taken away.
select claims.id
  from rota.claims
 where claims.worker = %(worker)s::bigint
   and %(job)s::bigint = any(claims.jobs)
