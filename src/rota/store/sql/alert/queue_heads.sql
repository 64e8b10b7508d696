-- Of each queue and lane in which something is ready, the job that is first: for how many seconds it has been ready at
-- least, what workers there are for it, and whether the queue is paused. At most a thousand places.
--
-- The places are found by going from one to the next in the index, each with one look. No row tells since when a job is
-- ready; but it has drawn its seq then, from the sequence that jobs draw their ids from, so the first job with
-- that id or a later one is no older. Null: there is none, or it was ready before and is so again under its old seq.
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
       crew.serving, crew.knowing, crew.running, crew.capacity,
       place.queue = any(array(select pauses.queue from rota.pauses))
  from place
 cross join lateral (
       select queued.seq, queued.job, queued.task, queued.lost
         from rota.queued
        where queued.queue = place.queue
          and queued.priority = place.priority
        order by queued.seq
        limit 1
       ) as head
  left join lateral (
       select jobs.created
         from rota.jobs
        where head.lost = 0
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
       ) as crew
