-- Remove a channel's registrations for these jobs.
delete from rota.waiters
 where waiters.job = any(%(jobs)s::bigint[])
   and waiters.listener = %(listener)s::text
