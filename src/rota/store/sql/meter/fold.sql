-- Fold what workers counted of minutes that are long over into one row for all, some at a time. Who does it at the same
-- moment waits, and finds the rest. Answers how many rows were folded.
with old as materialized (
    select tallies.ctid as spot
      from rota.tallies
     where tallies.worker <> 0
       and tallies.minute < rota.clock() - make_interval(secs => %(age)s::float8)
     order by tallies.minute
     limit %(most)s::int
),
gone as (
    delete from rota.tallies
     where tallies.ctid = any(array(select old.spot from old))
       and tallies.worker <> 0
    returning tallies.*
),
folded as (
    insert into rota.tallies as known (
           minute, queue, task, worker, claimed, given_back, succeeded, failed, cancelled, expired, skipped, quarantined,
           retried, slept, attempts, took, longest, waits, waited, longest_wait)
    select gone.minute, gone.queue, gone.task, 0, sum(gone.claimed), sum(gone.given_back), sum(gone.succeeded),
           sum(gone.failed), sum(gone.cancelled), sum(gone.expired), sum(gone.skipped), sum(gone.quarantined),
           sum(gone.retried), sum(gone.slept), sum(gone.attempts), sum(gone.took), max(gone.longest), sum(gone.waits),
           sum(gone.waited), max(gone.longest_wait)
      from gone
     group by gone.minute, gone.queue, gone.task
    on conflict (minute, queue, task, worker) do update
       set claimed = known.claimed + excluded.claimed,
           given_back = known.given_back + excluded.given_back,
           succeeded = known.succeeded + excluded.succeeded,
           failed = known.failed + excluded.failed,
           cancelled = known.cancelled + excluded.cancelled,
           expired = known.expired + excluded.expired,
           skipped = known.skipped + excluded.skipped,
           quarantined = known.quarantined + excluded.quarantined,
           retried = known.retried + excluded.retried,
           slept = known.slept + excluded.slept,
           attempts = known.attempts + excluded.attempts,
           took = known.took + excluded.took,
           longest = greatest(known.longest, excluded.longest),
           waits = known.waits + excluded.waits,
           waited = known.waited + excluded.waited,
           longest_wait = greatest(known.longest_wait, excluded.longest_wait)
)
select count(*) from gone
