-- Refuse the rest of the transaction, with RT005, if this is not the term any more; else there is no other until the
-- transaction ends.
select rota.assert_term(%(name)s::text, %(term)s::bigint)::text
