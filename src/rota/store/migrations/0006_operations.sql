-- breaking: no
-- Operations: audit, access tokens, alerts, statistics, autoscaling, trace links.

-- Audit

create table rota.audit (
    id       bigint generated always as identity primary key,
    at       timestamptz not null default rota.clock(),
    operator text not null,
    action   text not null,
    subject  text not null,
    detail   json not null default '{}'
);
comment on table rota.audit is 'Actions of operators, one row each.';
comment on column rota.audit.id is 'Id of the row.';
comment on column rota.audit.at is 'Time of the action.';
comment on column rota.audit.operator is 'Name of the operator.';
comment on column rota.audit.action is 'Action, such as `release lock`.';
comment on column rota.audit.subject is 'Object of the action, such as the name of a lock or the id of a run.';
comment on column rota.audit.detail is 'Further facts, a JSON object.';
-- Find the actions of an operator, of a kind, on a subject. Only the beginning of long names is indexed: index entries
-- have a maximum size, and that must not prevent an audit row from being written.
create index audit_operator on rota.audit (left(operator, 200), id);
create index audit_action on rota.audit (action, id);
create index audit_subject on rota.audit (left(subject, 200), id);

-- Access

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
comment on table rota.access_tokens is
    'Tokens for HTTP access. Only a digest and an id that is not secret are stored, so reading the table gives no '
    'access.';
comment on column rota.access_tokens.id is 'Id of the token. It is a part of the token and not secret.';
comment on column rota.access_tokens.name is 'Name of the token for operators.';
comment on column rota.access_tokens.role is 'Role: viewer, operator or admin.';
comment on column rota.access_tokens.digest is 'SHA-256 digest of the token.';
comment on column rota.access_tokens.created_by is 'Operator that created the token.';
comment on column rota.access_tokens.created is 'Time at which the token was created.';
comment on column rota.access_tokens.expires is 'Time at which the token expires; null: never.';
comment on column rota.access_tokens.revoked is 'Time at which the token was revoked; null: not revoked.';
comment on column rota.access_tokens.last_used is
    'Time of the latest use, recorded at most once a minute; null: never used.';

-- Alerts

create table rota.alerts (
    id                 bigint generated always as identity primary key,
    kind               text collate "C" not null,
    subject            text collate "C" not null,
    message            text not null,
    token              bigint,
    raised             timestamptz not null default rota.clock(),
    cleared            timestamptz,
    host               text not null,
    pid                integer not null,
    calm_since         timestamptz,
    acknowledged       timestamptz,
    acknowledged_until timestamptz,
    acknowledged_by    text,
    closed_by          text,
    delivered_to       text[] not null default '{}',
    delivery_attempts  integer not null default 0,
    deliver_at         timestamptz default rota.clock()
);
comment on table rota.alerts is
    'Alerts with the state of their delivery. At most one that is not cleared exists per kind and subject.';
comment on column rota.alerts.id is 'Id of the alert.';
comment on column rota.alerts.kind is 'Kind of the alert, such as `worker dead`.';
comment on column rota.alerts.subject is 'Object of the alert, such as a host, a queue or a lock.';
comment on column rota.alerts.message is 'Message for operators.';
comment on column rota.alerts.token is 'Token of the lease that the alert is about; null: not about a lease.';
comment on column rota.alerts.raised is 'Time at which the alert was raised.';
comment on column rota.alerts.cleared is 'Time at which the alert was closed; null: open.';
comment on column rota.alerts.host is 'Host of the process that raised the alert.';
comment on column rota.alerts.pid is 'Process id of the process that raised the alert.';
comment on column rota.alerts.calm_since is
    'Time from which the condition of the alert no longer holds, while it may recur; null: it holds.';
comment on column rota.alerts.acknowledged is 'Time of the acknowledgement; null: not acknowledged.';
comment on column rota.alerts.acknowledged_until is 'Time at which the acknowledgement ends.';
comment on column rota.alerts.acknowledged_by is 'Operator that acknowledged the alert.';
comment on column rota.alerts.closed_by is
    'Operator that closed the alert; null: open, or closed because the condition no longer holds.';
comment on column rota.alerts.delivered_to is
    'Deliveries made so far: `raised` or `cleared`, a space and the name of the receiver.';
comment on column rota.alerts.delivery_attempts is 'Number of attempts at the next delivery.';
comment on column rota.alerts.deliver_at is 'Time of the next delivery attempt; null: nothing to deliver.';
create unique index alerts_open on rota.alerts (kind, subject) where cleared is null;
create index alerts_deliver_at on rota.alerts (deliver_at) where deliver_at is not null;
create index alerts_acknowledged on rota.alerts (kind, subject, cleared) where closed_by is not null;
create index alerts_cleared on rota.alerts (cleared) where cleared is not null;

create table rota.alert_rounds (
    name   text collate "C" primary key,
    number bigint not null,
    at     timestamptz not null,
    state  json
);
comment on table rota.alert_rounds is 'Rounds of periodic checks that one instance makes for all instances.';
comment on column rota.alert_rounds.name is 'Name of the check.';
comment on column rota.alert_rounds.number is 'Number of the latest round.';
comment on column rota.alert_rounds.at is 'Time at which the latest round began.';
comment on column rota.alert_rounds.state is 'State that the latest round has stored for the next one, a JSON value.';

create table rota.refused_outcomes (
    at   timestamptz not null default rota.clock(),
    host text not null,
    pid  integer not null,
    jobs integer not null
);
comment on table rota.refused_outcomes is 'Outcomes that were refused because the worker no longer held the job.';
comment on column rota.refused_outcomes.at is 'Time of the refusal.';
comment on column rota.refused_outcomes.host is 'Host of the worker.';
comment on column rota.refused_outcomes.pid is 'Process id of the worker.';
comment on column rota.refused_outcomes.jobs is 'Number of refused outcomes.';
create index refused_outcomes_at on rota.refused_outcomes (at);

-- Statistics

-- A worker writes its counts of a minute repeatedly. They only rise, so on a repeated or late write the larger value is
-- kept and nothing is added twice. Old minutes are compacted into one row for all workers, with worker 0.
create table rota.minute_stats (
    minute           timestamptz not null,
    queue            text collate "C" not null,
    task             text collate "C" not null,
    worker           bigint not null,
    claimed          integer not null,
    returned         integer not null,
    succeeded        integer not null,
    failed           integer not null,
    cancelled        integer not null,
    expired          integer not null,
    skipped          integer not null,
    quarantined      integer not null,
    retried          integer not null,
    suspended        integer not null,
    attempts         integer not null,
    seconds          double precision not null,
    max_seconds      real not null,
    wait_count       integer not null,
    wait_seconds     double precision not null,
    max_wait_seconds real not null,
    primary key (minute, queue, task, worker)
) with (fillfactor = 70);
comment on table rota.minute_stats is 'Statistics of jobs per minute, queue, task and worker.';
comment on column rota.minute_stats.minute is 'Beginning of the minute.';
comment on column rota.minute_stats.queue is 'Name of the queue.';
comment on column rota.minute_stats.task is 'Name of the task.';
comment on column rota.minute_stats.worker is 'Id of the worker; 0: all workers, compacted.';
comment on column rota.minute_stats.claimed is 'Number of jobs claimed.';
comment on column rota.minute_stats.returned is 'Number of jobs returned to the queue without an attempt.';
comment on column rota.minute_stats.succeeded is 'Number of jobs that succeeded.';
comment on column rota.minute_stats.failed is 'Number of jobs that failed.';
comment on column rota.minute_stats.cancelled is 'Number of jobs that were cancelled.';
comment on column rota.minute_stats.expired is 'Number of jobs that expired.';
comment on column rota.minute_stats.skipped is 'Number of jobs that were skipped.';
comment on column rota.minute_stats.quarantined is 'Number of jobs that were quarantined.';
comment on column rota.minute_stats.retried is 'Number of attempts that failed and are followed by another.';
comment on column rota.minute_stats.suspended is 'Number of attempts that were suspended to sleep or wait.';
comment on column rota.minute_stats.attempts is 'Number of attempts that ran and ended.';
comment on column rota.minute_stats.seconds is 'Total duration of these attempts, in seconds.';
comment on column rota.minute_stats.max_seconds is 'Longest duration of an attempt, in seconds.';
comment on column rota.minute_stats.wait_count is 'Number of claimed jobs that were queued at creation.';
comment on column rota.minute_stats.wait_seconds is 'Total time that these jobs were queued, in seconds.';
comment on column rota.minute_stats.max_wait_seconds is 'Longest time that such a job was queued, in seconds.';
create index minute_stats_unfolded on rota.minute_stats (minute) where worker <> 0;

create table rota.queue_samples (
    minute         timestamptz not null,
    queue          text collate "C" not null,
    queued         bigint not null,
    oldest_seconds double precision not null,
    seq            bigint not null,
    primary key (queue, minute)
);
comment on table rota.queue_samples is
    'Number of queued jobs at the beginning of a minute, only for queues that were not empty, and once when a queue '
    'has become empty.';
comment on column rota.queue_samples.minute is 'Beginning of the minute.';
comment on column rota.queue_samples.queue is 'Name of the queue.';
comment on column rota.queue_samples.queued is 'Number of queued jobs.';
comment on column rota.queue_samples.oldest_seconds is 'Seconds that the oldest job has been queued.';
comment on column rota.queue_samples.seq is 'Highest number of `rota.ids` assigned by then.';
create index queue_samples_minute on rota.queue_samples (minute);

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
comment on function rota.queue_depths is
    'Return the number of queued jobs of each queue, or of one, and the seconds that the oldest has been queued. At '
    'most 20,000 jobs of a queue are counted, so the cost is bounded. Above that, `exact` is false and the number is '
    'estimated from a sample of the table''s pages.';

-- Autoscaling

-- A job takes at most one slot, regardless of its duration. If `mean_seconds` is null, no attempt has been measured
-- yet; the first one supplies a value.
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
comment on function rota.workers_needed is
    'Return the number of workers that a load requires: for the arrivals or the jobs already running, and to clear '
    'the backlog within `target` seconds.';

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
comment on function rota.autoscale is
    'Return the desired number of workers of each queue, or of one, with the figures behind it: `arrival_rate`, jobs '
    'per second over the last five minutes (claimed jobs and growth of the backlog); `mean_seconds`, the mean '
    'duration of an attempt; queued jobs; running jobs. `target` is the number of seconds in which a backlog is to be '
    'cleared. `concurrency` is the number of job slots of one worker; if null, the mean of the queue''s active '
    'workers, that of its latest worker, or 100.';

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
    'Return the desired number of workers of a queue: one number, for KEDA and other autoscalers that run a query. '
    'Public and stable.';

-- Traces

-- Written only for sampled traces; read when the job begins, or the run has finished, to link its span to them.
create table rota.trace_links (
    job   bigint not null,
    trace text not null
);
comment on table rota.trace_links is 'Spans of the attempts that finished before a job or run that waited for them.';
comment on column rota.trace_links.job is 'Id of the job or run that waited.';
comment on column rota.trace_links.trace is 'Position of the attempt in its trace, as a W3C traceparent.';
create index trace_links_job on rota.trace_links (job);
