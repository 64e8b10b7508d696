-- Write the progress of jobs. A report under an older claim is dropped: that worker has lost the job. Reports of
-- removed jobs are dropped, too.
insert into rota.progress as known (job, claim, done, total, note)
select given.job, given.claim, given.done, given.total, given.note
  from unnest(%(claims)s::bigint[], %(jobs)s::bigint[], %(done)b::float8[], %(totals)b::float8[], %(notes)b::text[])
       as given (claim, job, done, total, note)
 cross join lateral (select from rota.jobs where jobs.id = given.job offset 0) as there
 order by given.job
on conflict (job) do update
   set claim = excluded.claim, at = excluded.at, done = excluded.done, total = excluded.total, note = excluded.note
 where known.claim <= excluded.claim
