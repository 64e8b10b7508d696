-- Mark a worker as stopped. Jobs that it still holds are taken back by the reaper.
with forgotten as (
    delete from rota.worker_tasks where worker_tasks.worker = %(worker)s::bigint
)
update rota.workers
   set state = 'stopped', ended = rota.clock(), running = 0
 where workers.id = %(worker)s::bigint
   and workers.state in ('active', 'draining')
