-- What no worker that is there would take: of each queue, tasks whose jobs are first in it and which nobody who serves the
-- queue knows; how many of them are among the first hundred of each priority, the oldest one, and how many serve the queue.
--
-- What can be taken is taken from between what cannot, so that comes to the front: who looks at the front of each queue
-- sees it, however long the queue is. At most four hundred queues and priorities are looked at.
with recursive place as (
    (select queued.queue, queued.priority, 1 as number
       from rota.queued
      order by queued.queue, queued.priority
      limit 1)
     union all
    select next.queue, next.priority, place.number + 1
      from place
     cross join lateral (
           select queued.queue, queued.priority
             from rota.queued
            where (queued.queue, queued.priority) > (place.queue, place.priority)
            order by queued.queue, queued.priority
            limit 1
           ) as next
     where place.number < 400
),
heads as materialized (
    select place.queue, head.task, count(*) as jobs, min(head.job) as first
      from place
     cross join lateral (
           select queued.task, queued.job
             from rota.queued
            where queued.queue = place.queue
              and queued.priority = place.priority
            order by queued.seq
            limit 100
           ) as head
     group by place.queue, head.task
),
crew as materialized (
    select workers.queues, workers.tasks from rota.workers where workers.state = 'active'
)
select heads.queue, heads.task, heads.jobs, coalesce(job.run, heads.first), job.created,
       (select count(*) from crew where heads.queue = any(crew.queues))
  from heads
  left join lateral (select jobs.run, jobs.created from rota.jobs where jobs.id = heads.first offset 0) as job on true
 where not exists (select from crew where heads.queue = any(crew.queues) and heads.task = any(crew.tasks))
 order by heads.queue, heads.task
 limit 200
