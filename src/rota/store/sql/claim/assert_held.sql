-- Raise RT002, which aborts the transaction, if the claim no longer holds this job. Else lock the claim until the
-- transaction ends, so that the job is not taken back.
select rota.assert_claim(%(job)s::bigint, %(claim)s::bigint)::text
