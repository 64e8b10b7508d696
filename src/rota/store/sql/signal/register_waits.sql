-- Note that jobs wait for signals, and lock these until the transaction ends: who sends one meanwhile waits, and then
-- finds the jobs asleep. In one order, before any claim is held.
insert into rota.signals as known (run, name, jobs)
select given.run, given.name, array_agg(given.job)
  from unnest(%(runs)s::bigint[], %(names)s::text[], %(jobs)s::bigint[]) as given (run, name, job)
 group by given.run, given.name
 order by given.run, given.name
on conflict (run, name) do update
   set jobs = array(select distinct each.job from unnest(known.jobs || excluded.jobs) as each (job))
