-- Return the queued jobs of each queue and task: the number, the age of the oldest, the live workers that serve the
-- queue and have the task; and the number of quarantined jobs.
select coalesce(waits.queue, aside.queue) as queue, coalesce(waits.task, aside.task) as task,
       coalesce(waits.queued, 0) as queued, waits.oldest,
       (select count(*)
          from rota.workers
         where workers.state = 'active'
           and coalesce(waits.queue, aside.queue) = any(workers.queues)
           and coalesce(waits.task, aside.task) = any(workers.tasks)) as workers,
       coalesce(aside.quarantined, 0) as quarantined
  from (select queued.queue, queued.task, count(*) as queued,
               extract(epoch from rota.clock() - min(job.created))::float8 as oldest
          from rota.queued
          left join lateral (
               select jobs.created from rota.jobs where jobs.id = queued.job) as job on true
         group by queued.queue, queued.task) as waits
  full join (select quarantine.queue, quarantine.task, count(*) as quarantined
               from rota.quarantine
              group by quarantine.queue, quarantine.task) as aside
         on aside.queue = waits.queue and aside.task = waits.task
 order by 1, 2
