-- Write down what a worker has counted of some minutes so far. Can be repeated, and can come late: of two that tell of
-- the same minute the larger stands. What is told of a minute that may have been folded by now is dropped. The commit
-- is not flushed to disk: what a crash forgets is a few seconds of counts.
insert into rota.tallies as known (
       minute, queue, task, worker, claimed, given_back, succeeded, failed, cancelled, expired, skipped, quarantined,
       retried, slept, attempts, took, longest, waits, waited, longest_wait)
select to_timestamp(given.minute * 60), given.queue, given.task, %(worker)s::bigint, given.claimed, given.given_back,
       given.succeeded, given.failed, given.cancelled, given.expired, given.skipped, given.quarantined, given.retried,
       given.slept, given.attempts, given.took, given.longest, given.waits, given.waited, given.longest_wait
  from unnest(%(minute)s::bigint[], %(queue)s::text[], %(task)s::text[], %(claimed)s::int[], %(returned)s::int[],
              %(succeeded)s::int[], %(failed)s::int[], %(cancelled)s::int[], %(expired)s::int[], %(skipped)s::int[],
              %(quarantined)s::int[], %(retried)s::int[], %(suspended)s::int[], %(attempts)s::int[],
              %(seconds)s::float8[], %(max_seconds)s::real[], %(wait_count)s::int[], %(wait_seconds)s::float8[],
              %(max_wait_seconds)s::real[])
       as given (minute, queue, task, claimed, given_back, succeeded, failed, cancelled, expired, skipped, quarantined,
                 retried, slept, attempts, took, longest, waits, waited, longest_wait)
 where to_timestamp(given.minute * 60) > rota.clock() - make_interval(secs => %(late)s::float8)
   and (select set_config('synchronous_commit', 'off', true)) is not null
    on conflict (minute, queue, task, worker) do update
   set claimed = greatest(known.claimed, excluded.claimed),
       given_back = greatest(known.given_back, excluded.given_back),
       succeeded = greatest(known.succeeded, excluded.succeeded),
       failed = greatest(known.failed, excluded.failed),
       cancelled = greatest(known.cancelled, excluded.cancelled),
       expired = greatest(known.expired, excluded.expired),
       skipped = greatest(known.skipped, excluded.skipped),
       quarantined = greatest(known.quarantined, excluded.quarantined),
       retried = greatest(known.retried, excluded.retried),
       slept = greatest(known.slept, excluded.slept),
       attempts = greatest(known.attempts, excluded.attempts),
       took = greatest(known.took, excluded.took),
       longest = greatest(known.longest, excluded.longest),
       waits = greatest(known.waits, excluded.waits),
       waited = greatest(known.waited, excluded.waited),
       longest_wait = greatest(known.longest_wait, excluded.longest_wait)
