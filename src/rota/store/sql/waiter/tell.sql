-- Tell whoever waits for these jobs. Runs after their outcomes have committed, as a new statement: a
-- waiter registers first and looks second, so one of the two sees the other.
with told as (
    delete from rota.waiters
     where exists (select from rota.waiters)
       and waiters.job = any(%(jobs)s::bigint[])
    returning waiters.listener, waiters.job
)
select pg_notify(told.listener, told.job::text)
  from told
 where (select set_config('synchronous_commit', 'off', true)) is not null
