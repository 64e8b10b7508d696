-- Write the heartbeat of a worker. Returns true if a drain is requested, the jobs with a cancel request, the claims
-- that the worker holds according to the database, and true if there are pending releases. No row: the worker was
-- declared dead, and its outcomes are refused.
--
-- One row is updated, in place. Cancel requests are looked up job by job, and not at all if there are none.
with told as (
    update rota.workers
       set last_beat = rota.clock(), beats = workers.beats + 1, session_lock = %(session_lock)s::int,
           running = %(running)s::int, lag = %(lag)s::real
     where workers.id = %(worker)s::bigint
       and workers.state in ('active', 'draining')
    returning workers.drain_requested
),
held as materialized (
    select claims.id, claims.nonce, claims.jobs from rota.claims where claims.worker = %(worker)s::bigint
)
select told.drain_requested is not null,
       array(select member.job
               from held
              cross join lateral unnest(held.jobs) as member (job)
              cross join lateral (select from rota.cancels where cancels.job = member.job offset 0) as request
              where (select exists (select from rota.cancels))),
       array(select held.id from held order by held.id),
       array(select held.nonce::text from held order by held.id),
       exists (select from rota.pending_releases), rota.clock()
  from told
