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
gone as (
    delete from rota.sleeping where sleeping.job = any(array(select due.job from due))
    returning sleeping.*
),
put as (
    insert into rota.queued (seq, job, priority, attempt, lost, queue, task)
    select nextval('rota.ids'), gone.job, gone.priority, gone.attempt, gone.lost, gone.queue, gone.task
      from (select gone.* from gone order by gone.wake_at) as gone
    returning queued.queue
)
select (select count(*) from put)::int,
       array(select distinct put.queue from put),
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
