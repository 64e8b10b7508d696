-- Compact the per-worker statistics of old minutes into one row for all workers, at most `limit` rows at a time. A
-- concurrent call waits and compacts the remaining rows. Returns the number of rows compacted.
with old as materialized (
    select minute_stats.ctid as tuple
      from rota.minute_stats
     where minute_stats.worker <> 0
       and minute_stats.minute < rota.clock() - make_interval(secs => %(age)s::float8)
     order by minute_stats.minute
     limit %(limit)s::int
),
taken as (
    delete from rota.minute_stats
     where minute_stats.ctid = any(array(select old.tuple from old))
       and minute_stats.worker <> 0
    returning minute_stats.*
),
folded as (
    insert into rota.minute_stats as known (
           minute, queue, task, worker, claimed, returned, succeeded, failed, cancelled, expired, skipped, quarantined,
           retried, suspended, attempts, seconds, max_seconds, wait_count, wait_seconds, max_wait_seconds)
    select taken.minute, taken.queue, taken.task, 0, sum(taken.claimed), sum(taken.returned), sum(taken.succeeded),
           sum(taken.failed), sum(taken.cancelled), sum(taken.expired), sum(taken.skipped), sum(taken.quarantined),
           sum(taken.retried), sum(taken.suspended), sum(taken.attempts), sum(taken.seconds), max(taken.max_seconds),
           sum(taken.wait_count),
           sum(taken.wait_seconds), max(taken.max_wait_seconds)
      from taken
     group by taken.minute, taken.queue, taken.task
    on conflict (minute, queue, task, worker) do update
       set claimed = known.claimed + excluded.claimed,
           returned = known.returned + excluded.returned,
           succeeded = known.succeeded + excluded.succeeded,
           failed = known.failed + excluded.failed,
           cancelled = known.cancelled + excluded.cancelled,
           expired = known.expired + excluded.expired,
           skipped = known.skipped + excluded.skipped,
           quarantined = known.quarantined + excluded.quarantined,
           retried = known.retried + excluded.retried,
           suspended = known.suspended + excluded.suspended,
           attempts = known.attempts + excluded.attempts,
           seconds = known.seconds + excluded.seconds,
           max_seconds = greatest(known.max_seconds, excluded.max_seconds),
           wait_count = known.wait_count + excluded.wait_count,
           wait_seconds = known.wait_seconds + excluded.wait_seconds,
           max_wait_seconds = greatest(known.max_wait_seconds, excluded.max_wait_seconds)
)
select count(*) from taken
