-- Return the counts of outcomes, attempts, durations and waiting times in `buckets` buckets of `bucket_seconds`, oldest
-- first; of all jobs, or of one queue or task. Every bucket has a row. Buckets begin at multiples of their length; the
-- last one is not complete.
--
-- Each minute is one index look-up, so that no plan reads all of `minute_stats`.
select stretch.at, coalesce(sum(counted.succeeded), 0)::bigint, coalesce(sum(counted.failed), 0)::bigint,
       coalesce(sum(counted.cancelled), 0)::bigint, coalesce(sum(counted.expired), 0)::bigint,
       coalesce(sum(counted.skipped), 0)::bigint, coalesce(sum(counted.quarantined), 0)::bigint,
       coalesce(sum(counted.retried), 0)::bigint, coalesce(sum(counted.attempts), 0)::bigint,
       coalesce(sum(counted.seconds), 0)::float8, coalesce(max(counted.max_seconds), 0)::float8,
       coalesce(sum(counted.wait_count), 0)::bigint, coalesce(sum(counted.wait_seconds), 0)::float8,
       coalesce(max(counted.max_wait_seconds), 0)::float8
  from (select date_bin(make_interval(secs => %(bucket_seconds)s::float8), rota.clock(),
                        timestamptz '2000-01-01 00:00+00')
               - make_interval(secs => %(bucket_seconds)s::float8 * (%(buckets)s::int - number)) as at
          from generate_series(1, %(buckets)s::int) as number) as stretch
 cross join lateral (
       select stretch.at + number * interval '1 minute' as at
         from generate_series(0, (%(bucket_seconds)s::float8 / 60)::int - 1) as number) as minute
 cross join lateral (
       select sum(minute_stats.succeeded) as succeeded, sum(minute_stats.failed) as failed,
              sum(minute_stats.cancelled) as cancelled, sum(minute_stats.expired) as expired,
              sum(minute_stats.skipped) as skipped, sum(minute_stats.quarantined) as quarantined,
              sum(minute_stats.retried) as retried, sum(minute_stats.attempts) as attempts,
              sum(minute_stats.seconds) as seconds, max(minute_stats.max_seconds) as max_seconds,
              sum(minute_stats.wait_count) as wait_count, sum(minute_stats.wait_seconds) as wait_seconds,
              max(minute_stats.max_wait_seconds) as max_wait_seconds
         from rota.minute_stats
        where minute_stats.minute = minute.at
          and (%(queue)s::text is null or minute_stats.queue = %(queue)s::text)
          and (%(task)s::text is null or minute_stats.task = %(task)s::text)
       ) as counted
 group by stretch.at
 order by stretch.at
