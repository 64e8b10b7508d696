-- Of each of these queues, in so many stretches of `step` seconds up to now, the first first: how many jobs were taken from it,
-- how many ended, and how many were ready when the stretch began; null: nobody has seen.
with span as materialized (
    select date_bin(make_interval(secs => %(step)s::float8), rota.clock(), timestamptz '2000-01-01 00:00+00')
           - make_interval(secs => %(step)s::float8 * (%(many)s::int - 1)) as since
),
counted as materialized (
    select counted.queue, date_bin(make_interval(secs => %(step)s::float8), minute.at, timestamptz '2000-01-01 00:00+00') as at,
           sum(counted.taken) as taken, sum(counted.ended) as ended
      from span
     cross join lateral generate_series(span.since, rota.clock(), interval '1 minute') as minute (at)
     cross join lateral (
           select tallies.queue, sum(tallies.claimed - tallies.given_back) as taken,
                  sum(tallies.succeeded + tallies.failed + tallies.cancelled + tallies.expired + tallies.skipped) as ended
             from rota.tallies
            where tallies.minute = minute.at
            group by tallies.queue
           ) as counted
     where counted.queue = any(%(queues)s::text[])
     group by 1, 2
),
sampled as materialized (
    select seen.queue, seen.minute, seen.ready,
           lead(seen.minute, 1, 'infinity') over (partition by seen.queue order by seen.minute) as next
      from (select samples.queue, samples.minute, samples.ready
              from rota.samples
             where samples.queue = any(%(queues)s::text[])
               and samples.minute >= (select span.since from span)
             union all
            select before.queue, before.minute, before.ready
              from unnest(%(queues)s::text[]) as wanted (queue)
             cross join lateral (
                   select samples.queue, samples.minute, samples.ready
                     from rota.samples
                    where (samples.queue, samples.minute) < (wanted.queue, (select span.since from span))
                    order by samples.queue desc, samples.minute desc
                    limit 1) as before
             where before.queue = wanted.queue) as seen
)
select wanted.queue, array_agg(coalesce(counted.taken, 0)::bigint order by stretch.at),
       array_agg(coalesce(counted.ended, 0)::bigint order by stretch.at),
       array_agg(case when sampled.ready is null then 0
                      when sampled.minute = stretch.at or sampled.ready = 0 then sampled.ready end order by stretch.at)
  from span
 cross join unnest(%(queues)s::text[]) as wanted (queue)
 cross join lateral (
       select span.since + make_interval(secs => %(step)s::float8 * number) as at
         from generate_series(0, %(many)s::int - 1) as number) as stretch
  left join counted on counted.queue = wanted.queue and counted.at = stretch.at
  left join sampled on sampled.queue = wanted.queue
                   and sampled.minute <= stretch.at
                   and sampled.next > stretch.at
 group by wanted.queue
 order by wanted.queue
