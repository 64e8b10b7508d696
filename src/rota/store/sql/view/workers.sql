-- Return workers by id: live ones, or with `include_ended` also stopped and dead ones that are not deleted yet. With
-- `worker`, only that one.
select workers.id, workers.state::text, workers.host, workers.pid, workers.version, workers.engine, workers.queues,
       workers.tasks, workers.capacity, workers.running, round(workers.lag::numeric, 3)::float8 as lag,
       workers.metadata, workers.started, workers.last_beat, workers.drain_requested, workers.ended,
       coalesce(workers.charged_jobs, '{}') as charged_jobs
  from rota.workers
 where (%(include_ended)s::boolean or workers.state in ('active', 'draining'))
   and (%(worker)s::bigint is null or workers.id = %(worker)s)
 order by workers.id
