-- Return the maximum number of queued jobs in each of `buckets` buckets of `bucket_seconds`, oldest first; null if
-- there was no sample. Every bucket has a row.
--
-- While jobs are queued, a worker writes a sample at the beginning of every minute. When none are left, it writes one
-- sample with 0. So a gap after a sample above 0 means that no worker was running; a gap after 0 means that the queues
-- were empty.
with span as materialized (
    select date_bin(make_interval(secs => %(bucket_seconds)s::float8), rota.clock(), timestamptz '2000-01-01 00:00+00')
           - make_interval(secs => %(bucket_seconds)s::float8 * (%(buckets)s::int - 1)) as since
),
seen as materialized (
    select queue_samples.minute, sum(queue_samples.queued) as queued
      from rota.queue_samples
     where queue_samples.minute >= (select coalesce(max(before.minute), (select span.since from span))
                                from rota.queue_samples as before
                               where before.minute < (select span.since from span))
     group by queue_samples.minute
),
-- Each sampled minute, and the time until which its sample is valid.
known as materialized (
    select seen.minute, seen.queued,
           case when seen.queued = 0 then lead(seen.minute, 1, 'infinity') over (order by seen.minute)
                else seen.minute + interval '1 minute' end as until,
           lead(seen.minute, 1, 'infinity') over (order by seen.minute) as next
      from seen
)
select stretch.at,
       case when most.queued is not null then most.queued::bigint
            when unseen.here then null
            else 0 end
  from span
 cross join lateral (
       select span.since + make_interval(secs => %(bucket_seconds)s::float8 * number) as at,
              span.since + make_interval(secs => %(bucket_seconds)s::float8 * (number + 1)) as ends
         from generate_series(0, %(buckets)s::int - 1) as number) as stretch
 cross join lateral (
       select max(known.queued) as queued
         from known
        where known.minute < stretch.ends
          and known.until > stretch.at) as most
 cross join lateral (
       select exists (select
                        from known
                       where known.queued > 0
                         and known.minute < stretch.at
                         and known.next >= stretch.ends) as here) as unseen
 order by stretch.at
