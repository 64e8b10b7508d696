-- Stop asking.
delete from rota.waiters
 where waiters.job = any(%(jobs)b::bigint[])
   and waiters.listener = %(listener)s::text
