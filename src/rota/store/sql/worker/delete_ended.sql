-- Delete workers that ended long ago and hold no jobs.
delete from rota.workers
 where workers.ended < rota.clock() - make_interval(secs => %(age)s::float8)
   and workers.state in ('stopped', 'dead')
   and not exists (select from rota.claims where claims.worker = workers.id)
