-- Count workers for each queue and task, by the reason that keeps a worker from claiming such a job.
--
-- Each worker that serves the queue and has the task has one kind, the first that applies: draining, silent, late
-- (event loop lag), lone (runs a job exclusively), full, free.
select pair.queue, pair.task, count(judged.id)::int as there,
       count(*) filter (where judged.beating)::int as alive,
       count(*) filter (where judged.beating and judged.stays)::int as wakers,
       count(*) filter (where judged.serves)::int as serve,
       count(*) filter (where judged.knows)::int as know,
       count(*) filter (where judged.serves and judged.knows and judged.kind <> 'draining')::int as takers,
       coalesce(array_agg(judged.kind order by judged.id)
                filter (where judged.serves and judged.knows), '{}') as kinds,
       coalesce((array_agg(judged.id order by judged.id) filter (where judged.serves and judged.knows))[:5],
                '{}') as worker_ids,
       coalesce(sum(judged.running) filter (where judged.kind = 'full' and judged.serves and judged.knows),
                0)::int as running,
       coalesce((array_agg(distinct judged.version) filter (where judged.serves and not judged.knows))[:5],
                '{}') as versions,
       coalesce((select array_agg(distinct served.queue)
                   from (select unnest(other.queues) as queue
                           from rota.workers as other
                          where other.state = 'active'
                          limit 100) as served), '{}') as queues
  from unnest(%(queues)s::text[], %(tasks)s::text[]) as pair (queue, task)
  left join lateral (
       select workers.id, workers.version, workers.running, known.beating, known.stays,
              pair.queue = any(workers.queues) as serves, pair.task = any(workers.tasks) as knows,
              case when not known.stays then 'draining'
                   when not known.beating then 'silent'
                   when workers.lag > %(late_seconds)s::float8 then 'late'
                   when exists (select from rota.claims where claims.worker = workers.id and claims.exclusive)
                   then 'lone'
                   when workers.running >= workers.capacity then 'full'
                   else 'free' end as kind
         from rota.workers
        cross join lateral (
              select workers.last_beat >= rota.clock() - make_interval(secs => %(silent_seconds)s::float8) as beating,
                     workers.state = 'active' and workers.drain_requested is null as stays) as known
        where workers.state in ('active', 'draining')) as judged on true
 group by pair.queue, pair.task
