-- Lock a claim until the transaction ends, so that its jobs are not taken back. Return it if it holds this job.
--
-- FOR KEY SHARE does not conflict with `claim/lock`: other jobs of the claim can finish, and a cancel request does not
-- wait. This is a separate statement, so that the following ones see the changes committed while it waited.
select claims.id
  from rota.claims
 where claims.id = %(claim)s::bigint
   and claims.worker = %(worker)s::bigint
   and %(job)s::bigint = any(claims.jobs)
   for key share
