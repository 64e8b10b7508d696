-- Return tasks at the front of each queue that no active worker of the queue has: the number of their jobs among the
-- first `jobs_per_lane` of each priority, the run of the oldest one, and the number of workers that serve the queue.
--
-- Workers claim the jobs they can run, so unclaimable jobs accumulate at the front of the queue. Reading the front
-- finds them, for a queue of any length. At most 400 lanes (one queue at one priority) are read.
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
            limit %(jobs_per_lane)s::int
           ) as head
     group by place.queue, head.task
),
active as materialized (
    select workers.queues, workers.tasks from rota.workers where workers.state = 'active'
)
select heads.queue, heads.task, heads.jobs, coalesce(job.run, heads.first), job.created,
       (select count(*) from active where heads.queue = any(active.queues))
  from heads
  left join lateral (select jobs.run, jobs.created from rota.jobs where jobs.id = heads.first offset 0) as job on true
 where not exists (select from active where heads.queue = any(active.queues) and heads.task = any(active.tasks))
 order by heads.queue, heads.task
 limit 200
