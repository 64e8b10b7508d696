-- Return the run that has a key, or had it last, of each task and flow; or of one. Tasks are visited one by one over
-- the primary key, and at most a fixed number of them.
with recursive known (task) as (
    select coalesce(%(name)s::text, (select keys.task from rota.keys order by keys.task limit 1))
     union all
    select (select keys.task from rota.keys where keys.task > known.task order by keys.task limit 1)
      from known
     where known.task is not null and %(name)s::text is null
)
select held.run, job.id is null
  from (select known.task from known where known.task is not null limit %(name_limit)s::int) as known
  join rota.keys as held on held.task = known.task and held.key = %(key)s::text
  left join rota.jobs as job on job.id = held.run
  left join rota.runs as run on run.id = held.run
 where (job.id is not null and job.run is null or run.id is not null and run.parent is null)
   and (%(queue)s::text is null or job.queue = %(queue)s::text)
   and (%(since)s::timestamptz is null or coalesce(job.created, run.created) >= %(since)s::timestamptz)
   and (%(until)s::timestamptz is null or coalesce(job.created, run.created) < %(until)s::timestamptz)
   and held.run < %(before)s::bigint
   and held.run > %(after)s::bigint
 order by held.run desc
