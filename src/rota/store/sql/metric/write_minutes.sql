-- Write a worker's statistics of some minutes. The write may be repeated or late: the larger of two values for the
-- same minute is kept. Minutes that may already be compacted are dropped. The commit is not flushed to disk: a crash
-- loses only a few seconds of statistics.
insert into rota.minute_stats as known (
       minute, queue, task, worker, claimed, returned, succeeded, failed, cancelled, expired, skipped, quarantined,
       retried, suspended, attempts, seconds, max_seconds, wait_count, wait_seconds, max_wait_seconds)
select to_timestamp(given.minute * 60), given.queue, given.task, %(worker)s::bigint, given.claimed, given.returned,
       given.succeeded, given.failed, given.cancelled, given.expired, given.skipped, given.quarantined, given.retried,
       given.suspended, given.attempts, given.seconds, given.max_seconds, given.wait_count, given.wait_seconds,
       given.max_wait_seconds
  from unnest(%(minute)s::bigint[], %(queue)s::text[], %(task)s::text[], %(claimed)s::int[], %(returned)s::int[],
              %(succeeded)s::int[], %(failed)s::int[], %(cancelled)s::int[], %(expired)s::int[], %(skipped)s::int[],
              %(quarantined)s::int[], %(retried)s::int[], %(suspended)s::int[], %(attempts)s::int[],
              %(seconds)s::float8[], %(max_seconds)s::real[], %(wait_count)s::int[], %(wait_seconds)s::float8[],
              %(max_wait_seconds)s::real[])
       as given (minute, queue, task, claimed, returned, succeeded, failed, cancelled, expired, skipped, quarantined,
                 retried, suspended, attempts, seconds, max_seconds, wait_count, wait_seconds, max_wait_seconds)
 where to_timestamp(given.minute * 60) > rota.clock() - make_interval(secs => %(max_late_seconds)s::float8)
   and (select set_config('synchronous_commit', 'off', true)) is not null
    on conflict (minute, queue, task, worker) do update
   set claimed = greatest(known.claimed, excluded.claimed),
       returned = greatest(known.returned, excluded.returned),
       succeeded = greatest(known.succeeded, excluded.succeeded),
       failed = greatest(known.failed, excluded.failed),
       cancelled = greatest(known.cancelled, excluded.cancelled),
       expired = greatest(known.expired, excluded.expired),
       skipped = greatest(known.skipped, excluded.skipped),
       quarantined = greatest(known.quarantined, excluded.quarantined),
       retried = greatest(known.retried, excluded.retried),
       suspended = greatest(known.suspended, excluded.suspended),
       attempts = greatest(known.attempts, excluded.attempts),
       seconds = greatest(known.seconds, excluded.seconds),
       max_seconds = greatest(known.max_seconds, excluded.max_seconds),
       wait_count = greatest(known.wait_count, excluded.wait_count),
       wait_seconds = greatest(known.wait_seconds, excluded.wait_seconds),
       max_wait_seconds = greatest(known.max_wait_seconds, excluded.max_wait_seconds)
