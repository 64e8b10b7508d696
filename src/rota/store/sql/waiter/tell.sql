-- Tell whoever waits for these jobs, and forget wishes to cancel that came too late.
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
    returning waiters.listener, waiters.job
)
select pg_notify(told.listener, told.job::text)
  from told
 where (select set_config('synchronous_commit', 'off', true)) is not null
