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
    maker   text not null,
    created timestamptz not null default rota.clock(),
    expires timestamptz,
    revoked timestamptz,
    used    timestamptz
);

-- Whoever looks for what went wrong looks for few among many.
create index outcomes_bad on rota.outcomes (state, job) where state in ('failed', 'cancelled', 'expired');

-- Counts

-- What became of jobs, by the minute, as each worker counts it. A worker writes what it has counted of a minute so far,
-- again and again, and of what is written twice or late the larger stands: each count only rises, so none is added
-- twice. Minutes that are long over are folded into one row for all workers, under 0.
create table rota.tallies (
    minute       timestamptz not null,
    queue        text collate "C" not null,
    task         text collate "C" not null,
    worker       bigint not null,
    claimed      integer not null,
    given_back   integer not null,
    succeeded    integer not null,
    failed       integer not null,
    cancelled    integer not null,
    expired      integer not null,
    skipped      integer not null,
    quarantined  integer not null,
    retried      integer not null,                      -- attempts that failed and are followed by another
    slept        integer not null,
    attempts     integer not null,                      -- stretches of code that ran and came to an end
    took         double precision not null,             -- … all together, in seconds
    longest      real not null,
    waits        integer not null,                      -- claimed, of those that were ready from the start
    waited       double precision not null,             -- … how long, all together
    longest_wait real not null,
    primary key (minute, queue, task, worker)
) with (fillfactor = 70);
create index tallies_unfolded on rota.tallies (minute) where worker <> 0;

-- What was ready at the beginning of a minute, of queues that had something. `seq` is the last number given by then.
create table rota.samples (
    minute timestamptz not null,
    queue  text collate "C" not null,
    ready  bigint not null,
    oldest double precision not null,
    seq    bigint not null,
    primary key (queue, minute)
);
create index samples_minute on rota.samples (minute);

-- How many jobs are ready in each queue, or in one, and for how many seconds the oldest has been so. Costs no more
-- for a million than for twenty thousand: so many are counted, more are estimated from some pages of the table.
create function rota.depths(
    only_queue text default null,
    out queue text, out ready bigint, out exact boolean, out oldest double precision
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
        100, 100.0 * 500 * current_setting('block_size')::int / greatest(pg_relation_size('rota.ready'), 1));
    seen  json;                                         -- in a sample, by queue
begin
    for queue in
        with recursive known (name) as (
            select coalesce(only_queue, (select first.queue from rota.ready as first order by first.queue limit 1))
             union all
            select (select next.queue
                      from rota.ready as next
                     where next.queue > known.name
                     order by next.queue
                     limit 1)
              from known
             where known.name is not null and only_queue is null
        )
        select known.name from known where known.name is not null limit 200
    loop
        select count(*) into ready
          from (select from rota.ready as waits where waits.queue = depths.queue limit most) as counted;
        exact := ready < most;
        if not exact then
            if seen is null then
                select coalesce(json_object_agg(counted.queue, counted.jobs), '{}') into seen
                  from (select waits.queue, count(*) as jobs
                          from rota.ready as waits tablesample system (share)
                         group by waits.queue) as counted;
            end if;
            ready := greatest(most, (seen->>depths.queue)::bigint * 100.0 / share);
        end if;
        -- One that came back has a new number, and the time of that is kept nowhere: it is when the next job after
        -- it was started, or when that number was first seen to have been given.
        select max(greatest(date_part('epoch', rota.clock() - since.at), 0)) into oldest
          from generate_series(0, 9) as lane (number)
         cross join lateral (
               select waits.seq, waits.job
                 from rota.ready as waits
                where waits.queue = depths.queue
                  and waits.lane = lane.number::smallint
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
                                      (select min(samples.minute)
                                         from rota.samples
                                        where samples.queue = depths.queue
                                          and samples.seq >= head.seq)),
                                rota.clock()) end as at
               ) as since;
        if ready > 0 then
            return next;
        end if;
    end loop;
end
$$;

-- How many workers some load takes: what comes in, or what runs already, and what has piled up, within the target. A
-- job takes one place at most, however long it takes. `service` null: nobody knows yet, and the first will tell.
create function rota.workers_for(
    arrivals double precision, service double precision, backlog double precision, running double precision,
    target double precision, concurrency double precision, fewest integer, most integer
) returns integer
language sql immutable parallel safe
return least(greatest(
    ceil(least(
        -- What is next to nothing is not nothing, lest it become too small to be written.
        (greatest(greatest(arrivals, 1e-100) * greatest(service, 1e-100), running)
         + backlog * least(1, greatest(service, 1e-100) / greatest(target, 0.001))) / greatest(concurrency, 1),
        1e9) - 1e-9)::integer,
    case when backlog > 0 or running > 0 then 1 else 0 end,
    fewest), most);

-- Those that somebody has paused: nothing is claimed from them. Nearly always empty, and read once with every claim.
create table rota.pauses (
    queue text        collate "C" primary key,
    at    timestamptz not null default rota.clock(),
    who   text        not null,
    why   text        not null default ''
);

-- Of each queue, or of one, how many workers are wanted, and by what figures: arrivals a second over the last five
-- minutes (what was claimed since, and what the backlog grew by), the mean time of an attempt in seconds, what is ready,
-- what runs. `target` is in how many seconds a backlog is to be worked off. `concurrency`: of one worker; null, as those
-- have it that are there, or were within a day.
create function rota.autoscale(
    target double precision default 60, fewest integer default 0, most integer default 100,
    concurrency integer default null, only_queue text default null
) returns table (
    queue text, wanted integer, workers integer, backlog bigint, oldest double precision, running double precision,
    arrivals double precision, service double precision, places double precision)
language sql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with span as materialized (
        select rota.clock() as now, date_trunc('minute', rota.clock()) - interval '5 minutes' as since
    ),
    ready as materialized (
        select depths.queue, depths.ready, depths.oldest from rota.depths(only_queue) as depths
    ),
    moved as materialized (
        select counted.queue, sum(counted.claimed - counted.given_back) as claimed, sum(counted.attempts) as attempts,
               sum(counted.took) as took
          from span
         cross join generate_series(span.since, span.now, interval '1 minute') as minute (at)
         cross join lateral (
               select tallies.queue, tallies.claimed, tallies.given_back, tallies.attempts, tallies.took
                 from rota.tallies
                where tallies.minute = minute.at
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
        select ready.queue from ready
         union
        select moved.queue from moved
         union
        select unnest(there.queues) from there
         union
        select only_queue
    ),
    figures as (
        select known.queue, coalesce(ready.ready, 0) as backlog, coalesce(ready.oldest, 0) as oldest,
               coalesce(runs.jobs, 0) as running,
               greatest(
                   coalesce(moved.claimed, 0) + coalesce(ready.ready, 0)
                   - coalesce((select samples.ready
                                 from rota.samples
                                where samples.queue = known.queue and samples.minute = span.since), 0), 0)
               / date_part('epoch', span.now - span.since) as arrivals,
               case when moved.attempts > 0 then moved.took / moved.attempts
                    else (select past.took / past.attempts
                            from rota.tallies as past
                           where past.minute >= span.since - interval '1 day'
                             and past.queue = known.queue
                             and past.attempts > 0
                           order by past.minute desc
                           limit 1) end as service,
               (select count(*) from there where known.queue = any(there.queues))::integer as workers,
               coalesce(
                   autoscale.concurrency,
                   (select avg(there.capacity) from there where known.queue = any(there.queues)),
                   (select workers.capacity
                      from rota.workers
                     where known.queue = any(workers.queues)
                     order by workers.id desc
                     limit 1),
                   100)::double precision as places
          from known
         cross join span
          left join ready on ready.queue = known.queue
          left join moved on moved.queue = known.queue
          left join runs on runs.queue = known.queue
         where known.queue is not null
           and (only_queue is null or known.queue = only_queue)
    )
    select figures.queue,
           rota.workers_for(case when pause.on then 0 else figures.arrivals end, figures.service,
                            case when pause.on then 0 else figures.backlog end, figures.running, target,
                            figures.places, fewest, most),
           figures.workers, figures.backlog, figures.oldest, figures.running, figures.arrivals, figures.service,
           figures.places
      from figures
     cross join lateral (
           select figures.queue = any(array(select pauses.queue from rota.pauses)) as on) as pause
     order by figures.queue
$$;

-- The one number of it, for whoever scales by a query.
create function rota.wanted_workers(
    queue text, target double precision default 60, fewest integer default 0, most integer default 100,
    concurrency integer default null
) returns integer
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select scaled.wanted
      from rota.autoscale(target, fewest, most, concurrency, wanted_workers.queue) as scaled
$$;

comment on function rota.wanted_workers is
    'How many workers a queue wants: one number, for KEDA and the like. Public and stable.';

-- Traces

-- Who ended before a job or a run that waited for them: the spans of their attempts, as W3C traceparents. Written
-- only for traces that are kept, read when the job begins, or the run has ended, to say what it came of.
create table rota.links (
    job   bigint not null,
    trace text not null
);
create index links_job on rota.links (job);

-- Alerts

-- What is told of an alert, and to whom: `told` names what each receiver was told, `tell` is when to try next what is
-- still to be told; null: nothing is. `calm` is since when it is no longer so, while that may still change.
alter table rota.alerts
    add column calm         timestamptz,
    add column acknowledged timestamptz,
    add column until        timestamptz,
    add column who          text,
    add column closed_by    text,
    add column told         text[] not null default '{}',
    add column tries        integer not null default 0,
    add column tell         timestamptz default rota.clock();
create index alerts_tell on rota.alerts (tell) where tell is not null;
create index alerts_by_hand on rota.alerts (kind, subject, cleared) where closed_by is not null;
create index alerts_cleared on rota.alerts (cleared) where cleared is not null;

-- Rounds that one instance makes for all, each under the next number: who took the last, and what it has to remember.
create table rota.rounds (
    name   text collate "C" primary key,
    number bigint not null,
    at     timestamptz not null,
    memory json
);

-- Completions that were refused because the job was no longer its worker's: so many, on which host.
create table rota.refusals (
    at   timestamptz not null default rota.clock(),
    host text not null,
    pid  integer not null,
    jobs integer not null
);
create index refusals_at on rota.refusals (at);

-- Schedules that fail, among very many that do not.
create index schedules_failing on rota.schedules (failures) where failures > 0;
create index schedules_stopped on rota.schedules (name) where state = 'paused' and failures > 0;
