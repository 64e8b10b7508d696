-- Write log messages of jobs, each with its attempt and its age in seconds. Messages of removed jobs are dropped.
insert into rota.logs (job, at, attempt, message)
select given.job, rota.clock() - make_interval(secs => given.ago), given.attempt, given.message
  from unnest(%(jobs)s::bigint[], %(attempts)s::smallint[], %(ages)b::float8[], %(messages)b::text[])
       as given (job, attempt, ago, message)
 cross join lateral (select from rota.jobs where jobs.id = given.job offset 0) as there
