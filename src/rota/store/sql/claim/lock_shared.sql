-- Keep a claim as it is until the transaction ends: nobody takes its jobs away, nobody cancels them. Answers it
-- if it holds this job.
--
-- A statement of its own: what follows in the transaction then sees what was written while it waited.
select claims.id
  from rota.claims
 where claims.id = %(claim)s::bigint
   and claims.worker = %(worker)s::bigint
   and %(job)s::bigint = any(claims.jobs)
   for key share
