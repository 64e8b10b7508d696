-- What waits in each queue, by task: how many, how old the oldest is, whether a worker that is there serves the queue
-- and knows the task; and how many are in quarantine.
select coalesce(waits.queue, aside.queue) as queue, coalesce(waits.task, aside.task) as task,
       coalesce(waits.ready, 0) as ready, waits.oldest,
       (select count(*)
          from rota.workers
         where workers.state = 'active'
           and coalesce(waits.queue, aside.queue) = any(workers.queues)
           and coalesce(waits.task, aside.task) = any(workers.tasks)) as workers,
       coalesce(aside.quarantined, 0) as quarantined
  from (select ready.queue, ready.task, count(*) as ready,
               extract(epoch from rota.clock() - min(job.created))::float8 as oldest
          from rota.ready
          left join lateral (
               select jobs.created from rota.jobs where jobs.id = ready.job) as job on true
         group by ready.queue, ready.task) as waits
  full join (select quarantine.queue, quarantine.task, count(*) as quarantined
               from rota.quarantine
              group by quarantine.queue, quarantine.task) as aside
         on aside.queue = waits.queue and aside.task = waits.task
 order by 1, 2
