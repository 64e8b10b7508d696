-- Register jobs that wait for signals, and lock these signals until the transaction ends: a concurrent sender waits
-- and then finds the jobs in `sleeping`. The rows are locked in one order, and before any claim.
insert into rota.signals as known (run, name, jobs)
select given.run, given.name, array_agg(given.job)
  from unnest(%(runs)s::bigint[], %(names)s::text[], %(jobs)s::bigint[]) as given (run, name, job)
 group by given.run, given.name
 order by given.run, given.name
on conflict (run, name) do update
   set jobs = array(select distinct each.job from unnest(known.jobs || excluded.jobs) as each (job))
