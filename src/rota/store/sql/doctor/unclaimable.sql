-- Of what is first in each queue and lane, jobs that nobody takes: no worker that is there serves the queue, or none of
-- those that do knows the task. At most 200 queues, the first so many of each lane.
with recursive known (name) as (
    select (select first.queue from rota.ready as first order by first.queue limit 1)
     union all
    select (select next.queue from rota.ready as next where next.queue > known.name order by next.queue limit 1)
      from known
     where known.name is not null
),
front as materialized (
    select head.queue, head.task, count(*)::int as jobs, min(head.job) as job
      from (select known.name from known where known.name is not null limit 200) as known
     cross join generate_series(0, 9) as lane (number)
     cross join lateral (
           select ready.queue, ready.task, ready.job
             from rota.ready
            where ready.queue = known.name
              and ready.lane = lane.number::smallint
            order by ready.seq
            limit %(first)s::int) as head
     group by head.queue, head.task
)
select front.queue, front.task, front.jobs, front.job, crew.serving
  from front
 cross join lateral (
       select count(*)::int as serving,
              (count(*) filter (where front.task = any(workers.tasks)))::int as knowing
         from rota.workers
        where workers.state = 'active'
          and front.queue = any(workers.queues)) as crew
 where crew.knowing = 0
 order by front.jobs desc, front.queue, front.task
 limit 20
