-- Return the latest log messages of a job, latest first, with their total number, counted up to `count_limit`.
select logs.at, logs.attempt, logs.message,
       (select count(*)
          from (select from rota.logs where logs.job = %(job)s::bigint limit %(count_limit)s::int) as few)
  from rota.logs
 where logs.job = %(job)s::bigint
 order by logs.at desc, logs.ctid desc
 limit %(limit)s::int
