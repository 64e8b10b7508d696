-- Return the first job of each lane (one queue at one priority): the minimum number of seconds it has been queued, the
-- workers for it, and true if the queue is paused. At most 1,000 lanes.
--
-- Each lane is found from the one before with one index look-up. No row stores when a job was queued. But the job drew
-- its `seq` at that time, from the sequence of job ids, so the first job with this id or a later one was not created
-- before. The age is null if there is no such job, or if the head was lost with a worker and queued again under its old
-- `seq`.
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
     where place.number < 1000
)
select place.queue, place.priority, head.seq, head.job, head.task,
       extract(epoch from rota.clock() - since.created)::float8,
       worker_count.serving, worker_count.knowing, worker_count.running, worker_count.capacity,
       place.queue = any(array(select pauses.queue from rota.pauses))
  from place
 cross join lateral (
       select queued.seq, queued.job, queued.task, queued.crashes, queued.suspicion
         from rota.queued
        where queued.queue = place.queue
          and queued.priority = place.priority
        order by queued.seq
        limit 1
       ) as head
  left join lateral (
       select jobs.created
         from rota.jobs
        where head.crashes = 0
          and head.suspicion is null
          and jobs.id >= head.seq
        order by jobs.id
        limit 1
       ) as since on true
 cross join lateral (
       select count(*)::int as serving,
              (count(*) filter (where head.task = any(workers.tasks)))::int as knowing,
              coalesce(sum(workers.running) filter (where head.task = any(workers.tasks)), 0)::int as running,
              coalesce(sum(workers.capacity) filter (where head.task = any(workers.tasks)), 0)::int as capacity
         from rota.workers
        where workers.state = 'active'
          and place.queue = any(workers.queues)
       ) as worker_count
