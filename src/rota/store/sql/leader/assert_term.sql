-- Raise RT005, which aborts the transaction, if the term is not current. Else lock it until the transaction ends, so
-- that no other term begins.
select rota.assert_term(%(name)s::text, %(term)s::bigint)::text
