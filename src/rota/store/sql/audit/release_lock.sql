-- Release a lock or permit by force, if it is held (with `token`: if it is held under this token), and write an audit
-- entry. Return the former holder and its token, which is invalid from now on. No row: the lock is not held.
--
-- Waits 2 seconds for a transaction that has asserted the lock, then fails.
select held.holder->>'host', (held.holder->>'pid')::int, held.holder->>'label', (held.holder->>'token')::bigint,
       extract(epoch from rota.clock() - (held.holder->>'acquired')::timestamptz)::float8
  from (select rota.release_lock(%(name)s::text, %(permit)s::int, %(operator)s::text, %(token)s::bigint) as holder
        offset 0) as held
 where held.holder is not null
