-- A worker says it is there.
update rota.workers
   set beat = rota.clock()
 where workers.id = %(worker)s::bigint
