-- What a job's code had to say: the last so many lines, the last first, with how many there are, as far as that is worth
-- counting.
select logs.at, logs.attempt, logs.message,
       (select count(*)
          from (select from rota.logs where logs.job = %(job)s::bigint limit %(count_limit)s::int) as few)
  from rota.logs
 where logs.job = %(job)s::bigint
 order by logs.at desc, logs.ctid desc
 limit %(limit)s::int
