-- Return for each of these queues, in `buckets` buckets of `bucket_seconds`, oldest first: the jobs claimed, the jobs
-- ended, and the jobs queued when the bucket began (null if there was no sample).
with span as materialized (
    select date_bin(make_interval(secs => %(bucket_seconds)s::float8), rota.clock(), timestamptz '2000-01-01 00:00+00')
           - make_interval(secs => %(bucket_seconds)s::float8 * (%(buckets)s::int - 1)) as since
),
counted as materialized (
    select counted.queue,
           date_bin(make_interval(secs => %(bucket_seconds)s::float8), minute.at,
                    timestamptz '2000-01-01 00:00+00') as at,
           sum(counted.taken) as taken, sum(counted.ended) as ended
      from span
     cross join lateral generate_series(span.since, rota.clock(), interval '1 minute') as minute (at)
     cross join lateral (
           select minute_stats.queue, sum(minute_stats.claimed - minute_stats.returned) as taken,
                  sum(minute_stats.succeeded + minute_stats.failed + minute_stats.cancelled
                      + minute_stats.expired + minute_stats.skipped) as ended
             from rota.minute_stats
            where minute_stats.minute = minute.at
            group by minute_stats.queue
           ) as counted
     where counted.queue = any(%(queues)s::text[])
     group by 1, 2
),
sampled as materialized (
    select seen.queue, seen.minute, seen.queued,
           lead(seen.minute, 1, 'infinity') over (partition by seen.queue order by seen.minute) as next
      from (select queue_samples.queue, queue_samples.minute, queue_samples.queued
              from rota.queue_samples
             where queue_samples.queue = any(%(queues)s::text[])
               and queue_samples.minute >= (select span.since from span)
             union all
            select before.queue, before.minute, before.queued
              from unnest(%(queues)s::text[]) as wanted (queue)
             cross join lateral (
                   select queue_samples.queue, queue_samples.minute, queue_samples.queued
                     from rota.queue_samples
                    where (queue_samples.queue, queue_samples.minute) < (wanted.queue, (select span.since from span))
                    order by queue_samples.queue desc, queue_samples.minute desc
                    limit 1) as before
             where before.queue = wanted.queue) as seen
)
select wanted.queue, array_agg(coalesce(counted.taken, 0)::bigint order by stretch.at),
       array_agg(coalesce(counted.ended, 0)::bigint order by stretch.at),
       array_agg(case when sampled.queued is null then 0
                      when sampled.minute = stretch.at or sampled.queued = 0 then sampled.queued end
                 order by stretch.at)
  from span
 cross join unnest(%(queues)s::text[]) as wanted (queue)
 cross join lateral (
       select span.since + make_interval(secs => %(bucket_seconds)s::float8 * number) as at
         from generate_series(0, %(buckets)s::int - 1) as number) as stretch
  left join counted on counted.queue = wanted.queue and counted.at = stretch.at
  left join sampled on sampled.queue = wanted.queue
                   and sampled.minute <= stretch.at
                   and sampled.next > stretch.at
 group by wanted.queue
 order by wanted.queue
