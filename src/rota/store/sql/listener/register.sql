-- Ask to be told on a channel when a job has an outcome. Who asks also looks now and then, so the
-- commit is not flushed to disk.
insert into rota.waiters (job, listener)
select wanted.job, %(listener)s::text
  from unnest(%(jobs)s::bigint[]) as wanted (job)
 where (select set_config('synchronous_commit', 'off', true)) is not null
   -- Nobody will tell of what has ended already.
   and (select true from rota.outcomes where outcomes.job = wanted.job) is null
on conflict do nothing
returning waiters.job
