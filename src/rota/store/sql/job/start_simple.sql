-- Start one job without key, times or options. Returns the same row as `job/start`.
--
-- Two inserts without a function: the benchmarks compare this statement with a plain INSERT.
with written as (
    insert into rota.jobs (priority, task, queue, args, trace)
    values (%(priority)s::smallint, %(task)s::text, %(queue)s::text, %(args)s::text::json, %(trace)s::text)
    returning id, priority, queue, task
)
insert into rota.queued (seq, job, priority, queue, task)
select written.id, written.id, written.priority, written.queue, written.task
  from written
 -- Always true. With `notify`, the notification is sent at commit.
 where case when %(notify)s::boolean
            then pg_notify('rota.wake', written.queue)::text is not null
            else true end
returning queued.job, true
