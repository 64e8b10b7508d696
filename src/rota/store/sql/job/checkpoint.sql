-- Store the checkpoint of a job, if the claim still holds it. Return the job. No row: the job was taken back.
--
-- An earlier statement of the transaction has locked the claim.
insert into rota.checkpoints (job, state)
select %(job)s::bigint, %(state)s::text::json
  from rota.claims
 where claims.id = %(claim)s::bigint
   and claims.worker = %(worker)s::bigint
   and %(job)s::bigint = any(claims.jobs)
on conflict (job) do update set state = excluded.state, at = rota.clock()
returning checkpoints.job
