-- What waits in each queue, by task: how many, how old the oldest is, and whether a worker that is
-- there serves the queue and knows the task.
select ready.queue, ready.task, count(*) as ready,
       extract(epoch from rota.clock() - min(job.created))::float8 as oldest,
       (select count(*)
          from rota.workers
         where workers.beat > rota.clock() - interval '20 seconds'
           and ready.queue = any(workers.queues)
           and ready.task = any(workers.tasks)) as workers
  from rota.ready
  left join lateral (
       select jobs.created from rota.jobs where jobs.id = ready.job) as job on true
 group by ready.queue, ready.task
 order by ready.queue, ready.task
