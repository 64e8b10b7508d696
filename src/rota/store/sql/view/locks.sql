-- Locks and permits by name: those that are held, or have run out within an hour instead of being given back; or all that
-- there ever were.
select locks.name, locks.slot, locks.token, locks.instance, locks.host, locks.pid, locks.label, locks.acquired,
       locks.expires, locks.renewals, locks.longest, locks.wanted,
       locks.instance is not null and locks.expires > rota.clock() as held
  from rota.locks
 where (%(free)s::boolean or locks.instance is not null and locks.expires > rota.clock() - interval '1 hour')
   and (%(name)s::text is null or locks.name = %(name)s::text)
 order by locks.name, locks.slot
 limit %(limit)s::int
