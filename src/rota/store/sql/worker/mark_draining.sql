-- Mark a worker as draining: it can claim no more jobs.
update rota.workers
   set state = 'draining'
 where workers.id = %(worker)s::bigint
   and workers.state = 'active'
