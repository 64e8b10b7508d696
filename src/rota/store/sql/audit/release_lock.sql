-- Take a lock, or a permit, from whoever holds it, or holds it under this token, and write down who did. Answers who held it
-- and the token he can do nothing under any more; no row: nobody does. Waits two seconds for a transaction that relies
-- on it, then fails.
select held.holder->>'host', (held.holder->>'pid')::int, held.holder->>'label', (held.holder->>'token')::bigint,
       extract(epoch from rota.clock() - (held.holder->>'acquired')::timestamptz)::float8
  from (select rota.release_lock(%(name)s::text, %(permit)s::int, %(operator)s::text, %(token)s::bigint) as holder offset 0) as held
 where held.holder is not null
