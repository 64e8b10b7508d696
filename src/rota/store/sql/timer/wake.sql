-- Move sleeping jobs whose time has come to ready, the earliest first, at most `limit`.
-- Answers how many, the queues they went to, and in how many seconds the next one is due, and the next schedule.
with due as materialized (
    select asleep.job
      from rota.asleep
     where asleep.wake <= rota.clock()
     order by asleep.wake
     limit %(limit)b::int
       for update skip locked
),
gone as (
    delete from rota.asleep where asleep.job = any(array(select due.job from due))
    returning asleep.*
),
put as (
    insert into rota.ready (seq, job, lane, attempt, lost, queue, task)
    select nextval('rota.ids'), gone.job, gone.lane, gone.attempt, gone.lost, gone.queue, gone.task
      from (select gone.* from gone order by gone.wake) as gone
    returning ready.queue
)
select (select count(*) from put)::int,
       array(select distinct put.queue from put),
       (select extract(epoch from next.wake - rota.clock())::float8
          from rota.asleep as next
         where next.wake > rota.clock()
           and next.wake < 'infinity'
         order by next.wake
         limit 1),
       (select extract(epoch from next.due - rota.clock())::float8
          from rota.schedules as next
         where next.state = 'active'
         order by next.due
         limit 1)
