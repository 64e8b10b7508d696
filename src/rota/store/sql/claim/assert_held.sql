-- Refuse the rest of the transaction, with RT002, if the claim does not hold this job any more; else keep it there
-- until the transaction ends.
select rota.assert_claim(%(job)s::bigint, %(claim)s::bigint)::text
