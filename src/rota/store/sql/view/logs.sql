-- What a job's code had to say: the last so many lines, the last first, with how many there are.
select logs.at, logs.attempt, logs.message, count(*) over ()
  from rota.logs
 where logs.job = %(job)s::bigint
 order by logs.at desc, logs.ctid desc
 limit %(limit)s::int
