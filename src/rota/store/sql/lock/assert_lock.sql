-- Refuse the rest of the transaction, with RT004, if the lock is not held under this token any more; else nobody else
-- gets it until the transaction ends.
select rota.assert_lock(%(name)s::text, %(token)s::bigint)::text
