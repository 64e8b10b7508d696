-- breaking: no
-- Access tokens, statistics, autoscaling, trace links and alert delivery.

-- Access

-- Tokens for HTTP access. Only a digest and an id that is not secret are stored, so reading the table gives no access.
create table rota.access_tokens (
    id         text primary key,
    name       text not null check (length(name) between 1 and 200),
    role       text not null check (role in ('viewer', 'operator', 'admin')),
    digest     bytea not null check (octet_length(digest) = 32),
    created_by text not null,
    created    timestamptz not null default rota.clock(),
    expires    timestamptz,
    revoked    timestamptz,
    last_used  timestamptz
);

-- Finds the few unsuccessful outcomes among many.
create index outcomes_bad on rota.outcomes (state, job) where state in ('failed', 'cancelled', 'expired');

-- Counts

-- Statistics of jobs per minute, counted by each worker. A worker writes its counts of a minute repeatedly. They only
-- rise, so on a repeated or late write the larger value is kept and nothing is added twice. Old minutes are compacted
-- into one row for all workers, with worker 0.
create table rota.minute_stats (
    minute           timestamptz not null,
    queue            text collate "C" not null,
    task             text collate "C" not null,
    worker           bigint not null,                   -- 0: all workers, compacted
    claimed          integer not null,
    returned         integer not null,                  -- returned to the queue without an attempt
    succeeded        integer not null,
    failed           integer not null,
    cancelled        integer not null,
    expired          integer not null,
    skipped          integer not null,
    quarantined      integer not null,
    retried          integer not null,                  -- attempts that failed and are followed by another
    suspended        integer not null,                  -- attempts that suspended to sleep or wait
    attempts         integer not null,                  -- attempts that ran and ended
    seconds          double precision not null,         -- total duration of these attempts
    max_seconds      real not null,
    wait_count       integer not null,                  -- claimed jobs that were queued at creation
    wait_seconds     double precision not null,         -- total waiting time of these jobs, in seconds
    max_wait_seconds real not null,
    primary key (minute, queue, task, worker)
) with (fillfactor = 70);
create index minute_stats_unfolded on rota.minute_stats (minute) where worker <> 0;

-- Queued jobs at the beginning of a minute, only for queues that were not empty. `seq` is the highest number assigned
-- by then.
create table rota.queue_samples (
    minute         timestamptz not null,
    queue          text collate "C" not null,
    queued         bigint not null,                     -- number of queued jobs
    oldest_seconds double precision not null,           -- waiting time of the oldest job
    seq            bigint not null,
    primary key (queue, minute)
);
create index queue_samples_minute on rota.queue_samples (minute);

-- Return the number of queued jobs of each queue, or of one, and the seconds that the oldest has been queued. At most
-- 20,000 jobs of a queue are counted; above that, the number is estimated from a sample of the table's pages. So the
-- cost is bounded.
create function rota.queue_depths(
    only_queue text default null,
    out queue text, out queued bigint, out exact boolean, out oldest_seconds double precision
) returns setof record
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
    most  constant integer := 20000;
    share constant real := least(
        100, 100.0 * 500 * current_setting('block_size')::int / greatest(pg_relation_size('rota.queued'), 1));
    seen  json;                                         -- jobs in the sample, by queue
begin
    for queue in
        with recursive known (name) as (
            select coalesce(only_queue, (select first.queue from rota.queued as first order by first.queue limit 1))
             union all
            select (select next.queue
                      from rota.queued as next
                     where next.queue > known.name
                     order by next.queue
                     limit 1)
              from known
             where known.name is not null and only_queue is null
        )
        select known.name from known where known.name is not null limit 200
    loop
        select count(*) into queued
          from (select from rota.queued as waits where waits.queue = queue_depths.queue limit most) as counted;
        exact := queued < most;
        if not exact then
            if seen is null then
                select coalesce(json_object_agg(counted.queue, counted.jobs), '{}') into seen
                  from (select waits.queue, count(*) as jobs
                          from rota.queued as waits tablesample system (share)
                         group by waits.queue) as counted;
            end if;
            queued := greatest(most, (seen->>queue_depths.queue)::bigint * 100.0 / share);
        end if;
        -- A job that returned to the queue has a new `seq`, and the time of that is not stored. Estimate it: the time
        -- the next job was created after that number, or the first sample that has seen the number.
        select max(greatest(date_part('epoch', rota.clock() - since.at), 0)) into oldest_seconds
          from generate_series(0, 9) as priority (number)
         cross join lateral (
               select waits.seq, waits.job
                 from rota.queued as waits
                where waits.queue = queue_depths.queue
                  and waits.priority = priority.number::smallint
                order by waits.seq
                limit 1
               ) as head
         cross join lateral (
               select case when head.seq = head.job
                           then (select jobs.created from rota.jobs where jobs.id = head.job)
                           else coalesce(
                                least((select jobs.created
                                         from rota.jobs
                                        where jobs.id >= head.seq
                                        order by jobs.id
                                        limit 1),
                                      (select min(queue_samples.minute)
                                         from rota.queue_samples
                                        where queue_samples.queue = queue_depths.queue
                                          and queue_samples.seq >= head.seq)),
                                rota.clock()) end as at
               ) as since;
        if queued > 0 then
            return next;
        end if;
    end loop;
end
$$;

-- Return the number of workers that a load requires: for the arrivals or the jobs already running, and to clear the
-- backlog within the target. A job takes at most one slot, regardless of its duration. If `mean_seconds` is null, no
-- attempt has been measured yet; the first one supplies a value.
create function rota.workers_needed(
    arrival_rate double precision, mean_seconds double precision, backlog double precision, running double precision,
    target double precision, concurrency double precision, min_workers integer, max_workers integer
) returns integer
language sql immutable parallel safe
return least(greatest(
    ceil(least(
        -- Lower bounds prevent a numeric underflow in the product.
        (greatest(greatest(arrival_rate, 1e-100) * greatest(mean_seconds, 1e-100), running)
         + backlog * least(1, greatest(mean_seconds, 1e-100) / greatest(target, 0.001))) / greatest(concurrency, 1),
        1e9) - 1e-9)::integer,
    case when backlog > 0 or running > 0 then 1 else 0 end,
    min_workers), max_workers);

-- Paused queues: no job is claimed from them. Nearly always empty, and read once with every claim.
create table rota.pauses (
    queue    text collate "C" primary key,
    at       timestamptz not null default rota.clock(),
    operator text not null,
    reason   text not null default ''
);

-- Return the desired number of workers of each queue, or of one, with the figures behind it: `arrival_rate`, jobs per
-- second over the last five minutes (claimed jobs and growth of the backlog); `mean_seconds`, the mean duration of an
-- attempt; queued jobs; running jobs. `target` is the number of seconds in which a backlog is to be cleared.
-- `concurrency` is that of one worker; if null, that of the active workers, or of those of the last day.
create function rota.autoscale(
    target double precision default 60, min_workers integer default 0, max_workers integer default 100,
    concurrency integer default null, only_queue text default null
) returns table (
    queue text, desired integer, workers integer, backlog bigint, oldest_seconds double precision,
    running double precision,
    arrival_rate double precision, mean_seconds double precision, slots double precision)
language sql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with span as materialized (
        select rota.clock() as now, date_trunc('minute', rota.clock()) - interval '5 minutes' as since
    ),
    queued as materialized (
        select depths.queue, depths.queued, depths.oldest_seconds from rota.queue_depths(only_queue) as depths
    ),
    moved as materialized (
        select counted.queue, sum(counted.claimed - counted.returned) as claimed, sum(counted.attempts) as attempts,
               sum(counted.seconds) as seconds
          from span
         cross join generate_series(span.since, span.now, interval '1 minute') as minute (at)
         cross join lateral (
               select minute_stats.queue, minute_stats.claimed, minute_stats.returned, minute_stats.attempts,
                      minute_stats.seconds
                 from rota.minute_stats
                where minute_stats.minute = minute.at
               offset 0) as counted
         group by counted.queue
    ),
    there as materialized (
        select workers.id, workers.queues, workers.capacity, workers.running
          from rota.workers
         where workers.state = 'active'
    ),
    held as materialized (
        select member.worker, job.queue, count(*) as jobs
          from (select claims.worker, member.job
                  from rota.claims
                 cross join lateral unnest(claims.jobs) as member (job)
                 limit 20000) as member
         cross join lateral (select jobs.queue from rota.jobs where jobs.id = member.job offset 0) as job
         group by member.worker, job.queue
    ),
    -- Jobs that a worker holds beyond those it runs are prefetched and do not count as running.
    runs as materialized (
        select held.queue, sum(least(workers.running, whole.jobs) * held.jobs / whole.jobs)::double precision as jobs
          from held
          join (select held.worker, sum(held.jobs) as jobs from held group by held.worker) as whole
            on whole.worker = held.worker
          join rota.workers on workers.id = held.worker
         group by held.queue
    ),
    known as (
        select queued.queue from queued
         union
        select moved.queue from moved
         union
        select unnest(there.queues) from there
         union
        select only_queue
    ),
    figures as (
        select known.queue, coalesce(queued.queued, 0) as backlog, coalesce(queued.oldest_seconds, 0) as oldest_seconds,
               coalesce(runs.jobs, 0) as running,
               greatest(
                   coalesce(moved.claimed, 0) + coalesce(queued.queued, 0)
                   - coalesce((select queue_samples.queued
                                 from rota.queue_samples
                                where queue_samples.queue = known.queue and queue_samples.minute = span.since), 0), 0)
               / date_part('epoch', span.now - span.since) as arrival_rate,
               case when moved.attempts > 0 then moved.seconds / moved.attempts
                    else (select past.seconds / past.attempts
                            from rota.minute_stats as past
                           where past.minute >= span.since - interval '1 day'
                             and past.queue = known.queue
                             and past.attempts > 0
                           order by past.minute desc
                           limit 1) end as mean_seconds,
               (select count(*) from there where known.queue = any(there.queues))::integer as workers,
               coalesce(
                   autoscale.concurrency,
                   (select avg(there.capacity) from there where known.queue = any(there.queues)),
                   (select workers.capacity
                      from rota.workers
                     where known.queue = any(workers.queues)
                     order by workers.id desc
                     limit 1),
                   100)::double precision as slots
          from known
         cross join span
          left join queued on queued.queue = known.queue
          left join moved on moved.queue = known.queue
          left join runs on runs.queue = known.queue
         where known.queue is not null
           and (only_queue is null or known.queue = only_queue)
    )
    select figures.queue,
           rota.workers_needed(case when pause.on then 0 else figures.arrival_rate end, figures.mean_seconds,
                            case when pause.on then 0 else figures.backlog end, figures.running, target,
                            figures.slots, min_workers, max_workers),
           figures.workers, figures.backlog, figures.oldest_seconds, figures.running, figures.arrival_rate,
           figures.mean_seconds,
           figures.slots
      from figures
     cross join lateral (
           select figures.queue = any(array(select pauses.queue from rota.pauses)) as on) as pause
     order by figures.queue
$$;

-- Return only the desired number of workers of a queue, for autoscalers that run a query.
create function rota.desired_workers(
    queue text, target double precision default 60, min_workers integer default 0, max_workers integer default 100,
    concurrency integer default null
) returns integer
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select scaled.desired
      from rota.autoscale(target, min_workers, max_workers, concurrency, desired_workers.queue) as scaled
$$;

comment on function rota.desired_workers is
    'How many workers a queue wants: one number, for KEDA and the like. Public and stable.';

-- Traces

-- Spans of the attempts that finished before a job or run that waited for them, as W3C traceparents. Written only for
-- sampled traces; read when the job begins, or the run has finished, to link its span to them.
create table rota.trace_links (
    job   bigint not null,
    trace text not null
);
create index trace_links_job on rota.trace_links (job);

-- Alerts

-- State of an alert's delivery and acknowledgement.
alter table rota.alerts
    add column calm_since         timestamptz,                          -- since when its condition no longer holds,
                                                                        -- while it may recur
    add column acknowledged       timestamptz,
    add column acknowledged_until timestamptz,                          -- end of the acknowledgement
    add column acknowledged_by    text,
    add column closed_by          text,                                 -- operator that closed it
    add column delivered_to       text[] not null default '{}',         -- events delivered so far, by receiver
    add column delivery_attempts  integer not null default 0,           -- attempts at the next delivery
    add column deliver_at         timestamptz default rota.clock();     -- time of the next delivery attempt; null:
                                                                        -- nothing to deliver
create index alerts_deliver_at on rota.alerts (deliver_at) where deliver_at is not null;
create index alerts_acknowledged on rota.alerts (kind, subject, cleared) where closed_by is not null;
create index alerts_cleared on rota.alerts (cleared) where cleared is not null;

-- Rounds of periodic checks that one instance makes for all. Each has the next number; `state` is kept for the next
-- round.
create table rota.alert_rounds (
    name   text collate "C" primary key,
    number bigint not null,
    at     timestamptz not null,
    state  json
);

-- Outcomes that were refused because the worker no longer held the job.
create table rota.refused_outcomes (
    at   timestamptz not null default rota.clock(),
    host text not null,
    pid  integer not null,
    jobs integer not null                               -- number of refused outcomes
);
create index refused_outcomes_at on rota.refused_outcomes (at);

-- Find the few failing schedules among many.
create index schedules_failing on rota.schedules (failures) where failures > 0;
create index schedules_stopped on rota.schedules (name) where state = 'paused' and failures > 0;
