-- Keep how far a job has come, if the claim named still holds it. Answers the job; no row: it has been taken away.
--
-- The claim is pinned by an earlier statement of the transaction.
insert into rota.checkpoints (job, state)
select %(job)s::bigint, %(state)s::text::json
  from rota.claims
 where claims.id = %(claim)s::bigint
   and claims.worker = %(worker)s::bigint
   and %(job)s::bigint = any(claims.jobs)
on conflict (job) do update set state = excluded.state, at = rota.clock()
returning checkpoints.job
