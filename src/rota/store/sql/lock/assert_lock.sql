-- Raise RT004 if the lock is no longer held under this token. Otherwise no other instance can acquire it until the
-- transaction ends.
select rota.assert_lock(%(name)s::text, %(token)s::bigint)::text
