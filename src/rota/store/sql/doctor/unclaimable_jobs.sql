-- Return tasks at the front of queues that no active worker can claim: no worker serves the queue, or none of its
-- workers has the task. Checks at most 200 queues, and the first `jobs_per_lane` jobs of each lane.
with recursive known (name) as (
    select (select first.queue from rota.queued as first order by first.queue limit 1)
     union all
    select (select next.queue from rota.queued as next where next.queue > known.name order by next.queue limit 1)
      from known
     where known.name is not null
),
front as materialized (
    select head.queue, head.task, count(*)::int as jobs, min(head.job) as job
      from (select known.name from known where known.name is not null limit 200) as known
     cross join generate_series(0, 9) as priority (number)
     cross join lateral (
           select queued.queue, queued.task, queued.job
             from rota.queued
            where queued.queue = known.name
              and queued.priority = priority.number::smallint
            order by queued.seq
            limit %(jobs_per_lane)s::int) as head
     group by head.queue, head.task
)
select front.queue, front.task, front.jobs, front.job, worker_count.serving
  from front
 cross join lateral (
       select count(*)::int as serving,
              (count(*) filter (where front.task = any(workers.tasks)))::int as knowing
         from rota.workers
        where workers.state = 'active'
          and front.queue = any(workers.queues)) as worker_count
 where worker_count.knowing = 0
 order by front.jobs desc, front.queue, front.task
 limit 20
