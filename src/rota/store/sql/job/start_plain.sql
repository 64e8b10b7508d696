-- Start one job that has nothing of its own: no key, no time, no policy. Answers as start does.
--
-- For our own connections, which send the news after the commit. Two inserts without a function
-- around them: this is the statement that a bare INSERT is compared with.
with written as (
    insert into rota.jobs (lane, task, queue, args)
    values (%(priority)s::smallint, %(task)s::text, %(queue)s::text, %(args)s::text::json)
    returning id, lane, queue, task
)
insert into rota.ready (seq, job, lane, queue, task)
select written.id, written.id, written.lane, written.queue, written.task
  from written
returning ready.job, true
