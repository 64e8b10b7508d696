-- Ask to be told on a channel when a job has an outcome.
insert into rota.waiters (job, listener)
select wanted.job, %(listener)s::text
  from unnest(%(jobs)s::bigint[]) as wanted (job)
on conflict do nothing
