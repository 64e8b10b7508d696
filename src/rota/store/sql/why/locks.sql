-- Locks and permits that somebody holds and somebody else waits for, those waited for longest first.
select locks.name, locks.slot, locks.host, locks.pid, locks.label, locks.wanted, locks.expires
  from rota.locks
 where locks.instance is not null
   and locks.expires > rota.clock()
   and locks.wanted is not null
 order by locks.wanted
 limit %(limit)s::int
