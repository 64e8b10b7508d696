-- Start one job that has nothing of its own: no key, no time, no policy. Answers as start does.
--
-- Two inserts without a function around them: this is the statement that a bare INSERT is compared with.
with written as (
    insert into rota.jobs (priority, task, queue, args, trace)
    values (%(priority)s::smallint, %(task)s::text, %(queue)s::text, %(args)s::text::json, %(trace)s::text)
    returning id, priority, queue, task
)
insert into rota.queued (seq, job, priority, queue, task)
select written.id, written.id, written.priority, written.queue, written.task
  from written
 -- Always true; the news, where wanted, goes out with the commit.
 where case when %(notify)s::boolean
            then pg_notify('rota.wake', written.queue)::text is not null
            else true end
returning queued.job, true
