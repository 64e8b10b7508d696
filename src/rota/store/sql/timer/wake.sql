-- Move sleeping jobs that are due to `queued`, earliest first, at most `limit`. Returns their number, their queues,
-- and the seconds until the next sleeping job and the next schedule are due.
with due as materialized (
    select sleeping.job
      from rota.sleeping
     where sleeping.wake_at <= rota.clock()
     order by sleeping.wake_at
     limit %(limit)b::int
       for update skip locked
),
woken as (
    delete from rota.sleeping where sleeping.job = any(array(select due.job from due))
    returning sleeping.*
),
enqueued as (
    insert into rota.queued (seq, job, priority, attempt, crashes, queue, task)
    select nextval('rota.ids'), woken.job, woken.priority, woken.attempt, woken.crashes, woken.queue, woken.task
      from (select woken.* from woken order by woken.wake_at) as woken
    returning queued.queue
)
select (select count(*) from enqueued)::int,
       array(select distinct enqueued.queue from enqueued),
       (select extract(epoch from next.wake_at - rota.clock())::float8
          from rota.sleeping as next
         where next.wake_at > rota.clock()
           and next.wake_at < 'infinity'
         order by next.wake_at
         limit 1),
       (select extract(epoch from next.due - rota.clock())::float8
          from rota.schedules as next
         where next.state = 'active'
         order by next.due
         limit 1)
