-- Return locks and permits that are held while another client waits for them, longest wait first.
select locks.name, locks.slot, locks.host, locks.pid, locks.label, locks.awaited_since, locks.expires
  from rota.locks
 where locks.instance is not null
   and locks.expires > rota.clock()
   and locks.awaited_since is not null
 order by locks.awaited_since
 limit %(limit)s::int
