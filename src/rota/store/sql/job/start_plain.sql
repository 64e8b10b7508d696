-- Start one job that has nothing of its own: no key, no time, no policy. Answers as start does.
--
-- Two inserts without a function around them: this is the statement that a bare INSERT is compared with.
with written as (
    insert into rota.jobs (lane, task, queue, args, trace)
    values (%(priority)s::smallint, %(task)s::text, %(queue)s::text, %(args)s::text::json, %(trace)s::text)
    returning id, lane, queue, task
)
insert into rota.ready (seq, job, lane, queue, task)
select written.id, written.id, written.lane, written.queue, written.task
  from written
 -- Always true; the news, where wanted, goes out with the commit.
 where case when %(notify)s::boolean
            then pg_notify('rota.wake', written.queue)::text is not null
            else true end
returning ready.job, true
