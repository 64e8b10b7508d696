-- breaking: no
-- What the edge needs: who may ask for what, what was counted, where a trace goes on.

-- Access

-- Tokens of those who ask over HTTP. What is kept of one is a digest, and an id that is no secret: the table opens no
-- door.
create table rota.access_tokens (
    id      text primary key,
    name    text not null check (length(name) between 1 and 200),
    role    text not null check (role in ('viewer', 'operator', 'admin')),
    digest  bytea not null check (octet_length(digest) = 32),
    created_by   text not null,
    created timestamptz not null default rota.clock(),
    expires timestamptz,
    revoked timestamptz,
    last_used    timestamptz
);

-- Whoever looks for what went wrong looks for few among many.
create index outcomes_bad on rota.outcomes (state, job) where state in ('failed', 'cancelled', 'expired');

-- Counts

-- What became of jobs, by the minute, as each worker counts it. A worker writes what it has counted of a minute so far,
-- again and again, and of what is written twice or late the larger stands: each count only rises, so none is added
-- twice. Minutes that are long over are folded into one row for all workers, under 0.
create table rota.minute_stats (
    minute       timestamptz not null,
    queue        text collate "C" not null,
    task         text collate "C" not null,
    worker       bigint not null,
    claimed      integer not null,
    returned   integer not null,
    succeeded    integer not null,
    failed       integer not null,
    cancelled    integer not null,
    expired      integer not null,
    skipped      integer not null,
    quarantined  integer not null,
    retried      integer not null,                      -- attempts that failed and are followed by another
    suspended        integer not null,
    attempts     integer not null,                      -- stretches of code that ran and came to an end
    seconds         double precision not null,             -- … all together, in seconds
    max_seconds      real not null,
    wait_count        integer not null,                      -- claimed, of those that were ready from the start
    wait_seconds       double precision not null,             -- … how long, all together
    max_wait_seconds real not null,
    primary key (minute, queue, task, worker)
) with (fillfactor = 70);
create index minute_stats_unfolded on rota.minute_stats (minute) where worker <> 0;

-- What was ready at the beginning of a minute, of queues that had something. `seq` is the last number given by then.
create table rota.queue_samples (
    minute timestamptz not null,
    queue  text collate "C" not null,
    queued  bigint not null,
    oldest_seconds double precision not null,
    seq    bigint not null,
    primary key (queue, minute)
);
create index queue_samples_minute on rota.queue_samples (minute);

-- How many jobs are ready in each queue, or in one, and for how many seconds the oldest has been so. Costs no more
-- for a million than for twenty thousand: so many are counted, more are estimated from some pages of the table.
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
    seen  json;                                         -- in a sample, by queue
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
        -- One that came back has a new number, and the time of that is kept nowhere: it is when the next job after
        -- it was started, or when that number was first seen to have been given.
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

-- How many workers some load takes: what comes in, or what runs already, and what has piled up, within the target. A
-- job takes one place at most, however long it takes. `service` null: nobody knows yet, and the first will tell.
create function rota.workers_needed(
    arrival_rate double precision, mean_seconds double precision, backlog double precision, running double precision,
    target double precision, concurrency double precision, min_workers integer, max_workers integer
) returns integer
language sql immutable parallel safe
return least(greatest(
    ceil(least(
        -- What is next to nothing is not nothing, lest it become too small to be written.
        (greatest(greatest(arrival_rate, 1e-100) * greatest(mean_seconds, 1e-100), running)
         + backlog * least(1, greatest(mean_seconds, 1e-100) / greatest(target, 0.001))) / greatest(concurrency, 1),
        1e9) - 1e-9)::integer,
    case when backlog > 0 or running > 0 then 1 else 0 end,
    min_workers), max_workers);

-- Those that somebody has paused: nothing is claimed from them. Nearly always empty, and read once with every claim.
create table rota.pauses (
    queue text        collate "C" primary key,
    at    timestamptz not null default rota.clock(),
    operator   text        not null,
    reason   text        not null default ''
);

-- Of each queue, or of one, how many workers are desired, and by what figures: arrival_rate a second over the last five
-- minutes (what was claimed since, and what the backlog grew by), the mean time of an attempt in seconds, what is ready,
-- what runs. `target` is in how many seconds a backlog is to be worked off. `concurrency`: of one worker; null, as those
-- have it that are there, or were within a day.
create function rota.autoscale(
    target double precision default 60, min_workers integer default 0, max_workers integer default 100,
    concurrency integer default null, only_queue text default null
) returns table (
    queue text, desired integer, workers integer, backlog bigint, oldest_seconds double precision, running double precision,
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
               select minute_stats.queue, minute_stats.claimed, minute_stats.returned, minute_stats.attempts, minute_stats.seconds
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
    -- What a worker holds beyond what it runs is held ahead, and runs soon.
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
           figures.workers, figures.backlog, figures.oldest_seconds, figures.running, figures.arrival_rate, figures.mean_seconds,
           figures.slots
      from figures
     cross join lateral (
           select figures.queue = any(array(select pauses.queue from rota.pauses)) as on) as pause
     order by figures.queue
$$;

-- The one number of it, for whoever scales by a query.
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

-- Who ended before a job or a run that waited for them: the spans of their attempts, as W3C traceparents. Written
-- only for traces that are kept, read when the job begins, or the run has ended, to say what it came of.
create table rota.trace_links (
    job   bigint not null,
    trace text not null
);
create index trace_links_job on rota.trace_links (job);

-- Alerts

-- What is told of an alert, and to whom: `told` names what each receiver was told, `tell` is when to try next what is
-- still to be told; null: nothing is. `calm` is since when it is no longer so, while that may still change.
alter table rota.alerts
    add column calm_since         timestamptz,
    add column acknowledged timestamptz,
    add column acknowledged_until        timestamptz,
    add column acknowledged_by          text,
    add column closed_by    text,
    add column delivered_to         text[] not null default '{}',
    add column delivery_attempts        integer not null default 0,
    add column deliver_at         timestamptz default rota.clock();
create index alerts_deliver_at on rota.alerts (deliver_at) where deliver_at is not null;
create index alerts_acknowledged on rota.alerts (kind, subject, cleared) where closed_by is not null;
create index alerts_cleared on rota.alerts (cleared) where cleared is not null;

-- Rounds that one instance makes for all, each under the next number: who took the last, and what it has to remember.
create table rota.alert_rounds (
    name   text collate "C" primary key,
    number bigint not null,
    at     timestamptz not null,
    state json
);

-- Completions that were refused because the job was no longer its worker's: so many, on which host.
create table rota.refused_outcomes (
    at   timestamptz not null default rota.clock(),
    host text not null,
    pid  integer not null,
    jobs integer not null
);
create index refused_outcomes_at on rota.refused_outcomes (at);

-- Schedules that fail, among very many that do not.
create index schedules_failing on rota.schedules (failures) where failures > 0;
create index schedules_stopped on rota.schedules (name) where state = 'paused' and failures > 0;
