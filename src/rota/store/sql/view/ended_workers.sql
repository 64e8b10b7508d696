-- Return stopped and dead workers that are not deleted yet, latest first.
select workers.id, workers.state::text, workers.host, workers.pid, workers.version, workers.engine, workers.queues,
       workers.tasks, workers.capacity, workers.running, round(workers.lag::numeric, 3)::float8 as lag,
       workers.metadata, workers.started, workers.last_beat, workers.drain_requested, workers.ended,
       coalesce(workers.charged_jobs, '{}') as charged_jobs
  from rota.workers
 where workers.state in ('stopped', 'dead')
 order by workers.ended desc nulls last, workers.id desc
 limit %(limit)s::int
