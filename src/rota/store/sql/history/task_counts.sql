-- Return the counts of each task within `minutes`, by name, at most `limit` tasks.
select counted.task, sum(counted.succeeded)::bigint, sum(counted.failed)::bigint, sum(counted.cancelled)::bigint,
       sum(counted.expired)::bigint, sum(counted.skipped)::bigint, sum(counted.quarantined)::bigint,
       sum(counted.retried)::bigint, sum(counted.attempts)::bigint, sum(counted.seconds),
       max(counted.max_seconds)::float8, sum(counted.wait_count)::bigint, sum(counted.wait_seconds),
       max(counted.max_wait_seconds)::float8
  from (select date_trunc('minute', rota.clock()) - number * interval '1 minute' as at
          from generate_series(0, %(minutes)s::int - 1) as number) as minute
 cross join lateral (select minute_stats.*
                       from rota.minute_stats
                      where minute_stats.minute = minute.at
                     offset 0) as counted
 group by counted.task
 order by counted.task
 limit %(limit)s::int
