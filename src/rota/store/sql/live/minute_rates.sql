-- Return the finished jobs of the last minutes by queue and minute: all, failed and expired ones, retried attempts,
-- and how long jobs were queued before they were claimed.
select minute_stats.queue, extract(epoch from minute_stats.minute)::bigint as minute,
       sum(minute_stats.succeeded + minute_stats.failed + minute_stats.cancelled + minute_stats.expired
           + minute_stats.skipped)::bigint as ended,
       sum(minute_stats.failed + minute_stats.expired)::bigint as failed, sum(minute_stats.retried)::bigint as retried,
       sum(minute_stats.wait_count)::bigint as wait_count, sum(minute_stats.wait_seconds)::float8 as wait_seconds
  from rota.minute_stats
 where minute_stats.minute >= date_trunc('minute', rota.clock()) - make_interval(mins => %(minutes)s::int)
 group by minute_stats.queue, minute_stats.minute
 order by minute_stats.queue, minute_stats.minute
 limit 1000
