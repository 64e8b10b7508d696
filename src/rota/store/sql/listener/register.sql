-- Register a channel for the outcomes of jobs. Returns the registered jobs. Waiters also poll, so the commit is not
-- flushed to disk.
insert into rota.waiters (job, listener)
select wanted.job, %(listener)s::text
  from unnest(%(jobs)s::bigint[]) as wanted (job)
 where (select set_config('synchronous_commit', 'off', true)) is not null
   -- No notification is sent for a job that has already finished.
   and (select true from rota.outcomes where outcomes.job = wanted.job) is null
on conflict do nothing
returning waiters.job
