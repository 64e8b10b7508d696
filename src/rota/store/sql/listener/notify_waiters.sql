-- Notify the clients that wait for these jobs and runs, and delete cancel requests that arrived too late.
--
-- Runs as a new statement after the outcomes have committed. A waiter registers first and checks second, so either it
-- or this statement sees the other. A cancel request that was written while the job was being completed is visible
-- only now.
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
       -- The list may contain a run that is still open; its waiters are also notified if a job in it has failed.
       -- Scalar subqueries instead of `exists` force one index look-up per row.
       and coalesce((select true from rota.outcomes where outcomes.job = waiters.job),
                    (select waiting.failed > 0 from rota.waiting where waiting.job = waiters.job))
    returning waiters.listener, waiters.job
)
select pg_notify(told.listener, told.job::text)
  from told
 where (select set_config('synchronous_commit', 'off', true)) is not null
