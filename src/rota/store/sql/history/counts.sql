-- What became of jobs, in so many stretches of `step` seconds up to now, the first first: of all, or of one queue or task.
-- Every stretch has a row. Stretches begin at whole multiples of their length, and the last is not over.
--
-- Minute by minute, each found in the index: nothing the planner takes for likely makes it read all that was ever counted.
select stretch.at, coalesce(sum(counted.succeeded), 0)::bigint, coalesce(sum(counted.failed), 0)::bigint,
       coalesce(sum(counted.cancelled), 0)::bigint, coalesce(sum(counted.expired), 0)::bigint,
       coalesce(sum(counted.skipped), 0)::bigint, coalesce(sum(counted.quarantined), 0)::bigint,
       coalesce(sum(counted.retried), 0)::bigint, coalesce(sum(counted.attempts), 0)::bigint,
       coalesce(sum(counted.took), 0)::float8, coalesce(max(counted.longest), 0)::float8,
       coalesce(sum(counted.waits), 0)::bigint, coalesce(sum(counted.waited), 0)::float8,
       coalesce(max(counted.longest_wait), 0)::float8
  from (select date_bin(make_interval(secs => %(step)s::float8), rota.clock(), timestamptz '2000-01-01 00:00+00')
               - make_interval(secs => %(step)s::float8 * (%(many)s::int - number)) as at
          from generate_series(1, %(many)s::int) as number) as stretch
 cross join lateral (
       select stretch.at + number * interval '1 minute' as at
         from generate_series(0, (%(step)s::float8 / 60)::int - 1) as number) as minute
 cross join lateral (
       select sum(tallies.succeeded) as succeeded, sum(tallies.failed) as failed,
              sum(tallies.cancelled) as cancelled, sum(tallies.expired) as expired, sum(tallies.skipped) as skipped,
              sum(tallies.quarantined) as quarantined, sum(tallies.retried) as retried,
              sum(tallies.attempts) as attempts, sum(tallies.took) as took, max(tallies.longest) as longest,
              sum(tallies.waits) as waits, sum(tallies.waited) as waited, max(tallies.longest_wait) as longest_wait
         from rota.tallies
        where tallies.minute = minute.at
          and (%(queue)s::text is null or tallies.queue = %(queue)s::text)
          and (%(task)s::text is null or tallies.task = %(task)s::text)
       ) as counted
 group by stretch.at
 order by stretch.at
