-- Return the claim under which this worker holds a job. No row: the job was taken back.
select claims.id
  from rota.claims
 where claims.worker = %(worker)s::bigint
   and %(job)s::bigint = any(claims.jobs)
