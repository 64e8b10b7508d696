-- A worker drains: from here on claiming refuses it.
update rota.workers
   set state = 'draining'
 where workers.id = %(worker)s::bigint
   and workers.state = 'active'
