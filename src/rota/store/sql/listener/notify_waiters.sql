-- Tell whoever waits for these jobs and runs, and forget wishes to cancel that came too late.
--
-- Runs after their outcomes have committed, as a new statement. A waiter registers first and looks second,
-- so one of the two sees the other; a wish written while the job was being completed is seen only now.
with forgotten as (
    delete from rota.cancels
     where exists (select from rota.cancels)
       and cancels.job = any(%(jobs)s::bigint[])
       and exists (select from rota.outcomes where outcomes.job = cancels.job)
),
told as (
    delete from rota.waiters
     where exists (select from rota.waiters)
       and waiters.job = any(%(jobs)s::bigint[])
       -- A run may be among them that is still open; that something in it has failed is news as well.
       -- Not `exists`, which leaves the planner another way than one look-up each.
       and coalesce((select true from rota.outcomes where outcomes.job = waiters.job),
                    (select waiting.failed > 0 from rota.waiting where waiting.job = waiters.job))
    returning waiters.listener, waiters.job
)
select pg_notify(told.listener, told.job::text)
  from told
 where (select set_config('synchronous_commit', 'off', true)) is not null
