-- What the migrations add up to. Written by `make schema` and compared by a test; not for editing,
-- and not what a database is made from.

create sequence rota.ids as bigint start 1 increment 1 minvalue 1 maxvalue 9223372036854775807 cache 1;

create sequence rota.tokens as bigint start 1 increment 1 minvalue 1 maxvalue 9223372036854775807 cache 1;

create type rota.entry_kind as enum ('step', 'sleep', 'wait', 'value', 'version');

create type rota.outcome as enum ('succeeded', 'failed', 'cancelled', 'expired', 'skipped');

create type rota.rule as enum ('all_succeeded', 'none_failed', 'all_done', 'any_failed');

create type rota.schedule_state as enum ('active', 'paused', 'disabled', 'ended');

create type rota.worker_state as enum ('active', 'draining', 'stopped', 'dead');

create table rota.access_tokens (
    id text not null,
    name text not null,
    role text not null,
    digest bytea not null,
    created_by text not null,
    created timestamp with time zone not null default rota.clock(),
    expires timestamp with time zone,
    revoked timestamp with time zone,
    last_used timestamp with time zone,
    constraint access_tokens_pkey PRIMARY KEY (id),
    constraint access_tokens_digest_check CHECK ((octet_length(digest) = 32)),
    constraint access_tokens_name_check CHECK (((length(name) >= 1) AND (length(name) <= 200))),
    constraint access_tokens_role_check CHECK ((role = ANY (ARRAY['viewer'::text, 'operator'::text, 'admin'::text])))
);

create table rota.alert_rounds (
    name text collate "C" not null,
    number bigint not null,
    at timestamp with time zone not null,
    state json,
    constraint alert_rounds_pkey PRIMARY KEY (name)
);

create table rota.alerts (
    id bigint not null generated always as identity,
    kind text collate "C" not null,
    subject text collate "C" not null,
    message text not null,
    token bigint,
    raised timestamp with time zone not null default rota.clock(),
    cleared timestamp with time zone,
    host text not null,
    pid integer not null,
    calm_since timestamp with time zone,
    acknowledged timestamp with time zone,
    acknowledged_until timestamp with time zone,
    acknowledged_by text,
    closed_by text,
    delivered_to text[] not null default '{}'::text[],
    delivery_attempts integer not null default 0,
    deliver_at timestamp with time zone default rota.clock(),
    constraint alerts_pkey PRIMARY KEY (id)
);
CREATE INDEX alerts_acknowledged ON rota.alerts USING btree (kind, subject, cleared) WHERE (closed_by IS NOT NULL);
CREATE INDEX alerts_cleared ON rota.alerts USING btree (cleared) WHERE (cleared IS NOT NULL);
CREATE INDEX alerts_deliver_at ON rota.alerts USING btree (deliver_at) WHERE (deliver_at IS NOT NULL);
CREATE UNIQUE INDEX alerts_open ON rota.alerts USING btree (kind, subject) WHERE (cleared IS NULL);

create table rota.attempts (
    job bigint not null,
    claim bigint,
    worker bigint,
    at timestamp with time zone not null default rota.clock(),
    seconds real,
    state rota.outcome not null,
    attempt smallint not null,
    result json,
    error json
);
CREATE INDEX attempts_job ON rota.attempts USING btree (job, attempt);

create table rota.audit (
    id bigint not null generated always as identity,
    at timestamp with time zone not null default rota.clock(),
    operator text not null,
    action text not null,
    subject text not null,
    detail json not null default '{}'::json,
    constraint audit_pkey PRIMARY KEY (id)
);
CREATE INDEX audit_action ON rota.audit USING btree (action, id);
CREATE INDEX audit_operator ON rota.audit USING btree ("left"(operator, 200), id);
CREATE INDEX audit_subject ON rota.audit USING btree ("left"(subject, 200), id);

create table rota.cancels (
    job bigint not null,
    at timestamp with time zone not null default rota.clock(),
    constraint cancels_pkey PRIMARY KEY (job)
);

create table rota.checkpoints (
    job bigint not null,
    at timestamp with time zone not null default rota.clock(),
    state json not null,
    constraint checkpoints_pkey PRIMARY KEY (job)
);

create table rota.claims (
    id bigint not null generated always as identity,
    worker bigint not null,
    nonce uuid not null,
    at timestamp with time zone not null default rota.clock(),
    expires timestamp with time zone,
    exclusive boolean,
    jobs bigint[] not null storage external,
    attempts smallint[] not null storage external,
    lost smallint[] not null storage external,
    seqs bigint[] not null storage external,
    constraint claims_pkey PRIMARY KEY (id)
) with (fillfactor=50, autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=500, autovacuum_vacuum_cost_delay=0);

create table rota.instances (
    id uuid not null,
    host text not null,
    pid integer not null,
    label text not null,
    version text not null,
    started timestamp with time zone not null default rota.clock(),
    last_seen timestamp with time zone not null default rota.clock(),
    expires timestamp with time zone not null,
    services text[] not null,
    running text[] not null default '{}'::text[],
    constraint instances_pkey PRIMARY KEY (id)
) with (fillfactor=50);

create table rota.iterations (
    service text collate "C" not null,
    number bigint not null,
    term bigint not null,
    instance uuid not null,
    host text not null,
    pid integer not null,
    started timestamp with time zone not null default rota.clock(),
    ended timestamp with time zone,
    outcome text,
    error json,
    constraint iterations_pkey PRIMARY KEY (service, number)
);

create table rota.jobs (
    id bigint not null default nextval('rota.ids'::regclass),
    run bigint,
    created timestamp with time zone not null default rota.clock(),
    expires timestamp with time zone,
    priority smallint not null default 0,
    task text collate "C" not null,
    queue text collate "C" not null,
    key text collate "C",
    args json not null,
    options json,
    rule rota.rule,
    successors bigint[],
    inputs json,
    forked_from bigint,
    trace text,
    constraint jobs_pkey PRIMARY KEY (id),
    constraint jobs_priority_check CHECK (((priority >= 0) AND (priority <= 9)))
);

create table rota.keys (
    task text collate "C" not null,
    key text collate "C" not null,
    run bigint not null,
    expires timestamp with time zone,
    while_open boolean not null default false,
    constraint keys_pkey PRIMARY KEY (task, key)
);

create table rota.leaders (
    name text collate "C" not null,
    term bigint not null,
    instance uuid,
    host text,
    pid integer,
    label text,
    since timestamp with time zone,
    expires timestamp with time zone,
    session_lock integer,
    elections timestamp with time zone[] not null default '{}'::timestamp with time zone[],
    constraint leaders_pkey PRIMARY KEY (name)
) with (fillfactor=50);

create table rota.locks (
    name text collate "C" not null,
    slot integer not null,
    token bigint not null,
    instance uuid,
    nonce uuid,
    host text,
    pid integer,
    label text,
    acquired timestamp with time zone,
    expires timestamp with time zone,
    renewals integer not null default 0,
    max_held double precision,
    awaited_since timestamp with time zone,
    constraint locks_pkey PRIMARY KEY (name, slot)
) with (fillfactor=50);
CREATE INDEX locks_held ON rota.locks USING btree (name, slot) WHERE (instance IS NOT NULL);

create table rota.logs (
    job bigint not null,
    at timestamp with time zone not null,
    attempt smallint not null,
    message text not null
);
CREATE INDEX logs_job ON rota.logs USING btree (job, at);

create table rota.migrations (
    version integer not null,
    name text not null,
    at timestamp with time zone not null default now(),
    constraint migrations_pkey PRIMARY KEY (version)
);

create table rota.minute_stats (
    minute timestamp with time zone not null,
    queue text collate "C" not null,
    task text collate "C" not null,
    worker bigint not null,
    claimed integer not null,
    returned integer not null,
    succeeded integer not null,
    failed integer not null,
    cancelled integer not null,
    expired integer not null,
    skipped integer not null,
    quarantined integer not null,
    retried integer not null,
    suspended integer not null,
    attempts integer not null,
    seconds double precision not null,
    max_seconds real not null,
    wait_count integer not null,
    wait_seconds double precision not null,
    max_wait_seconds real not null,
    constraint minute_stats_pkey PRIMARY KEY (minute, queue, task, worker)
) with (fillfactor=70);
CREATE INDEX minute_stats_unfolded ON rota.minute_stats USING btree (minute) WHERE (worker <> 0);

create table rota.once_calls (
    key text collate "C" not null,
    token bigint not null,
    instance uuid not null,
    nonce uuid not null,
    host text not null,
    pid integer not null,
    label text not null,
    started timestamp with time zone not null,
    expires timestamp with time zone not null,
    finished timestamp with time zone,
    retained_until timestamp with time zone not null,
    result json,
    awaited_since timestamp with time zone,
    constraint once_calls_pkey PRIMARY KEY (key)
) with (fillfactor=70);
CREATE INDEX once_calls_retained_until ON rota.once_calls USING btree (retained_until);

create table rota.outcomes (
    job bigint not null,
    claim bigint,
    worker bigint,
    at timestamp with time zone not null default rota.clock(),
    seconds real,
    state rota.outcome not null,
    attempt smallint not null,
    result json,
    error json,
    constraint outcomes_pkey PRIMARY KEY (job)
);
CREATE INDEX outcomes_bad ON rota.outcomes USING btree (state, job) WHERE (state = ANY (ARRAY['failed'::rota.outcome, 'cancelled'::rota.outcome, 'expired'::rota.outcome]));

create table rota.pauses (
    queue text collate "C" not null,
    at timestamp with time zone not null default rota.clock(),
    operator text not null,
    reason text not null default ''::text,
    constraint pauses_pkey PRIMARY KEY (queue)
);

create table rota.pending_releases (
    job bigint not null,
    kind rota.outcome not null,
    constraint pending_releases_pkey PRIMARY KEY (job)
);

create table rota.progress (
    job bigint not null,
    claim bigint not null,
    at timestamp with time zone not null default rota.clock(),
    done double precision not null,
    total double precision,
    note text,
    constraint progress_pkey PRIMARY KEY (job)
) with (fillfactor=50);

create table rota.quarantine (
    job bigint not null,
    priority smallint not null,
    attempt smallint not null,
    lost smallint not null,
    queue text collate "C" not null,
    task text collate "C" not null,
    at timestamp with time zone not null default rota.clock(),
    error json,
    constraint quarantine_pkey PRIMARY KEY (job)
);

create table rota.queue_samples (
    minute timestamp with time zone not null,
    queue text collate "C" not null,
    queued bigint not null,
    oldest_seconds double precision not null,
    seq bigint not null,
    constraint queue_samples_pkey PRIMARY KEY (queue, minute)
);
CREATE INDEX queue_samples_minute ON rota.queue_samples USING btree (minute);

create table rota.queued (
    seq bigint not null,
    job bigint not null,
    priority smallint not null,
    attempt smallint not null default 1,
    lost smallint not null default 0,
    queue text collate "C" not null,
    task text collate "C" not null
) with (autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=20000, autovacuum_vacuum_cost_delay=0, autovacuum_analyze_scale_factor=0.5);
CREATE INDEX queued_order ON rota.queued USING btree (queue, priority, seq);
CREATE INDEX queued_suspects ON rota.queued USING btree (priority DESC, seq) WHERE (lost < 0);

create table rota.rate_limits (
    name text collate "C" not null,
    refilled_at timestamp with time zone not null,
    interval_seconds double precision not null,
    last_used timestamp with time zone not null,
    constraint rate_limits_pkey PRIMARY KEY (name)
) with (fillfactor=50);

create table rota.refused_outcomes (
    at timestamp with time zone not null default rota.clock(),
    host text not null,
    pid integer not null,
    jobs integer not null
);
CREATE INDEX refused_outcomes_at ON rota.refused_outcomes USING btree (at);

create table rota.runs (
    id bigint not null default nextval('rota.ids'::regclass),
    created timestamp with time zone not null default rota.clock(),
    flow text collate "C",
    key text collate "C",
    parent bigint,
    number integer,
    forked_from bigint,
    input json not null,
    jobs bigint[] not null,
    successors bigint[],
    constraint runs_pkey PRIMARY KEY (id)
);
CREATE INDEX runs_flow ON rota.runs USING btree (flow, id) WHERE ((flow IS NOT NULL) AND (parent IS NULL));
CREATE UNIQUE INDEX runs_parent ON rota.runs USING btree (parent, number) WHERE (parent IS NOT NULL);

create table rota.schedules (
    name text collate "C" not null,
    declared boolean not null,
    kind text not null,
    target text collate "C" not null,
    input json not null,
    tenant text collate "C",
    cron text,
    tz text not null default 'UTC'::text,
    every double precision,
    at timestamp with time zone,
    overlap text not null default 'skip'::text,
    catch_up text not null default 'latest'::text,
    at_most integer not null default 100,
    grace double precision,
    jitter double precision not null default 0,
    starts timestamp with time zone,
    ends timestamp with time zone,
    max_runs bigint,
    pause_after integer,
    queue text collate "C",
    state rota.schedule_state not null default 'active'::rota.schedule_state,
    reason text,
    paused_reason text,
    created timestamp with time zone not null default rota.clock(),
    anchor timestamp with time zone not null,
    next timestamp with time zone,
    due timestamp with time zone,
    queued timestamp with time zone,
    ticks bigint not null default 0,
    runs bigint not null default 0,
    missed bigint not null default 0,
    last timestamp with time zone,
    run bigint,
    failures integer not null default 0,
    last_success timestamp with time zone,
    last_failure timestamp with time zone,
    constraint schedules_pkey PRIMARY KEY (name)
) with (fillfactor=70);
CREATE INDEX schedules_declared ON rota.schedules USING btree (target) WHERE (declared AND (state <> 'disabled'::rota.schedule_state));
CREATE INDEX schedules_due ON rota.schedules USING btree (due) WHERE (state = 'active'::rota.schedule_state);
CREATE INDEX schedules_ended ON rota.schedules USING btree (COALESCE(last, created)) WHERE ((state = 'ended'::rota.schedule_state) AND (NOT declared));
CREATE INDEX schedules_failing ON rota.schedules USING btree (failures) WHERE (failures > 0);
CREATE INDEX schedules_postponed ON rota.schedules USING btree (next) WHERE ((state = 'active'::rota.schedule_state) AND (reason IS NOT NULL));
CREATE INDEX schedules_stopped ON rota.schedules USING btree (name) WHERE ((state = 'paused'::rota.schedule_state) AND (failures > 0));

create table rota.services (
    name text collate "C" not null,
    every double precision,
    iteration bigint not null default 0,
    started timestamp with time zone,
    failures integer not null default 0,
    retry_at timestamp with time zone,
    constraint services_pkey PRIMARY KEY (name)
) with (fillfactor=50);

create table rota.signals (
    run bigint not null,
    name text collate "C" not null,
    at timestamp with time zone,
    payload json,
    jobs bigint[] not null default '{}'::bigint[],
    constraint signals_pkey PRIMARY KEY (run, name)
);

create table rota.sleeping (
    job bigint not null,
    wake_at timestamp with time zone not null,
    priority smallint not null,
    attempt smallint not null default 1,
    lost smallint not null default 0,
    queue text collate "C" not null,
    task text collate "C" not null,
    signals text[],
    since timestamp with time zone not null default rota.clock(),
    constraint sleeping_pkey PRIMARY KEY (job)
);
CREATE INDEX sleeping_wake_at ON rota.sleeping USING btree (wake_at);

create table rota.steps (
    job bigint not null,
    kind rota.entry_kind not null,
    name text collate "C" not null,
    number integer not null,
    "position" integer not null,
    main_branch boolean not null,
    branch_key text collate "C" not null default ''::text,
    open boolean not null default false,
    tries smallint not null default 1,
    at timestamp with time zone not null default rota.clock(),
    seconds real,
    wake_at timestamp with time zone,
    result json,
    error json,
    constraint steps_pkey PRIMARY KEY (job, kind, name, number)
);

create table rota.ticks (
    schedule text collate "C" not null,
    tick timestamp with time zone not null,
    number bigint not null,
    state text not null,
    reason text,
    backfilled boolean not null default false,
    at timestamp with time zone not null default rota.clock(),
    host text not null,
    pid integer not null,
    run bigint,
    outcome rota.outcome,
    ended timestamp with time zone,
    constraint ticks_pkey PRIMARY KEY (schedule, tick)
);
CREATE INDEX ticks_lost ON rota.ticks USING btree (at) WHERE (state = ANY (ARRAY['missed'::text, 'refused'::text]));
CREATE INDEX ticks_number ON rota.ticks USING btree (schedule, number);
CREATE INDEX ticks_open ON rota.ticks USING btree (schedule) WHERE ((run IS NOT NULL) AND (ended IS NULL));

create table rota.trace_links (
    job bigint not null,
    trace text not null
);
CREATE INDEX trace_links_job ON rota.trace_links USING btree (job);

create table rota.waiters (
    job bigint not null,
    listener text not null,
    constraint waiters_pkey PRIMARY KEY (job, listener)
);

create table rota.waiting (
    job bigint not null,
    open integer not null,
    failed integer not null default 0,
    cancelled integer not null default 0,
    skipped integer not null default 0,
    attempt smallint not null default 1,
    rule rota.rule,
    priority smallint,
    queue text collate "C",
    task text collate "C",
    since timestamp with time zone not null default rota.clock(),
    constraint waiting_pkey PRIMARY KEY (job),
    constraint waiting_open_check CHECK ((open > 0))
) with (fillfactor=50, autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=20000, autovacuum_vacuum_cost_delay=0);

create table rota.worker_tasks (
    worker bigint not null,
    task text collate "C" not null,
    prefetchable boolean not null,
    constraint worker_tasks_pkey PRIMARY KEY (worker, task)
);

create table rota.workers (
    id bigint not null generated always as identity,
    host text not null,
    pid integer not null,
    version text not null,
    engine text not null default ''::text,
    queues text[] not null,
    tasks text[] not null,
    schedules text[] not null default '{}'::text[],
    capacity integer not null,
    metadata json not null default '{}'::json,
    session_lock integer,
    state rota.worker_state not null default 'active'::rota.worker_state,
    running integer not null default 0,
    lag real not null default 0,
    started timestamp with time zone not null default rota.clock(),
    last_beat timestamp with time zone not null default rota.clock(),
    beats bigint not null default 0,
    drain_requested timestamp with time zone,
    ended timestamp with time zone,
    charged_jobs bigint[],
    doubtful_jobs bigint[],
    constraint workers_pkey PRIMARY KEY (id)
) with (fillfactor=50);

create view rota.job_state (
    job bigint,
    run bigint,
    task text,
    queue text,
    state text,
    attempt smallint,
    worker bigint,
    since timestamp with time zone
) as
SELECT job.id AS job,
    COALESCE(job.run, job.id) AS run,
    job.task,
    job.queue,
    COALESCE((outcome.state)::text,
        CASE
            WHEN (held.job IS NOT NULL) THEN 'running'::text
            WHEN (sleeping.job IS NOT NULL) THEN 'sleeping'::text
            WHEN (waiting.job IS NOT NULL) THEN 'waiting'::text
            WHEN (quarantine.job IS NOT NULL) THEN 'quarantined'::text
            ELSE 'queued'::text
        END) AS state,
    (COALESCE((outcome.attempt)::integer, (held.attempt)::integer, (sleeping.attempt)::integer, (waiting.attempt)::integer, (quarantine.attempt)::integer, ( SELECT (max(attempts.attempt) + 1)
           FROM rota.attempts
          WHERE (attempts.job = job.id)), 1))::smallint AS attempt,
    COALESCE(outcome.worker, held.worker) AS worker,
    COALESCE(outcome.at, held.at, sleeping.since, waiting.since, quarantine.at, ( SELECT max(attempts.at) AS max
           FROM rota.attempts
          WHERE (attempts.job = job.id)), job.created) AS since
   FROM (((((rota.jobs job
     LEFT JOIN rota.outcomes outcome ON ((outcome.job = job.id)))
     LEFT JOIN rota.sleeping ON ((sleeping.job = job.id)))
     LEFT JOIN rota.waiting ON ((waiting.job = job.id)))
     LEFT JOIN rota.quarantine ON ((quarantine.job = job.id)))
     LEFT JOIN ( SELECT member.job,
            member.attempt,
            claims.worker,
            claims.at
           FROM (rota.claims
             CROSS JOIN LATERAL UNNEST(claims.jobs, claims.attempts) member(job, attempt))) held ON ((held.job = job.id)));

create view rota.run_state (
    run bigint,
    name text,
    is_flow boolean,
    queue text,
    state text,
    attempt smallint,
    created timestamp with time zone,
    since timestamp with time zone,
    key text,
    parent bigint
) as
SELECT state.run,
    state.task AS name,
    false AS is_flow,
    state.queue,
    state.state,
    state.attempt,
    job.created,
    state.since,
    job.key,
    NULL::bigint AS parent
   FROM (rota.jobs job
     JOIN rota.job_state state ON ((state.job = job.id)))
  WHERE (job.run IS NULL)
UNION ALL
 SELECT run.id AS run,
    COALESCE(run.flow, ''::text) AS name,
    true AS is_flow,
    NULL::text AS queue,
    COALESCE((outcome.state)::text, 'running'::text) AS state,
    COALESCE(outcome.attempt, waiting.attempt, (1)::smallint) AS attempt,
    run.created,
    COALESCE(outcome.at, run.created) AS since,
    run.key,
    run.parent
   FROM ((rota.runs run
     LEFT JOIN rota.outcomes outcome ON ((outcome.job = run.id)))
     LEFT JOIN rota.waiting ON ((waiting.job = run.id)));

create function rota.assert_claim(job bigint,
    claim bigint) returns void
language plpgsql volatile parallel unsafe
set search_path=pg_catalog, pg_temp
as $$
begin
    perform from rota.claims
      where claims.id = assert_claim.claim
        and assert_claim.job = any(claims.jobs)
        for key share;
    if not found then
        raise exception 'job % is no longer held under claim %', assert_claim.job, assert_claim.claim
            using errcode = 'RT002';
    end if;
end
$$;

create function rota.assert_lock(name text,
    token bigint) returns void
language plpgsql volatile parallel unsafe
set search_path=pg_catalog, pg_temp
as $$
begin
    perform from rota.locks
      where locks.name = assert_lock.name
        and locks.token = assert_lock.token
        and locks.instance is not null
        and locks.expires > rota.clock()
        for key share;
    if not found then
        raise exception 'lock % is no longer held under token %', quote_literal(assert_lock.name), assert_lock.token
            using errcode = 'RT004';
    end if;
end
$$;

create function rota.assert_term(name text,
    term bigint) returns void
language plpgsql volatile parallel unsafe
set search_path=pg_catalog, pg_temp
as $$
begin
    perform from rota.leaders
      where leaders.name = assert_term.name
        and leaders.term = assert_term.term
        and leaders.instance is not null
        and (leaders.expires is null or leaders.expires > rota.clock())
        for key share;
    if not found then
        raise exception 'term % of leader % is over', assert_term.term, quote_literal(assert_term.name)
            using errcode = 'RT005';
    end if;
end
$$;

create function rota.autoscale(target double precision DEFAULT 60,
    min_workers integer DEFAULT 0,
    max_workers integer DEFAULT 100,
    concurrency integer DEFAULT NULL::integer,
    only_queue text DEFAULT NULL::text)
language sql stable parallel unsafe
set jit=off
set search_path=pg_catalog, pg_temp
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

create function rota.cancel(run bigint) returns text
language plpgsql volatile parallel unsafe
set enable_bitmapscan=off
set enable_mergejoin=off
set enable_seqscan=off
set jit=off
set lock_timeout=2s
set search_path=pg_catalog, pg_temp
as $$
declare
    tree    bigint[];                                   -- the runs concerned
    wanted  bigint[];                                   -- their jobs, or the one job
    missing bigint[];                                   -- … not found yet
    bound   bigint[] := '{}';                           -- … in rows that are locked
    stopped bigint[] := '{}';                           -- … that this call has cancelled
    here    bigint[];
    held    boolean := false;
    waits   boolean := true;                            -- may wait for a claim: no row of `waiting` is locked
    deep    boolean := false;                           -- search whole lanes of `queued`
    locked  integer;
    passed  record;
begin
    select array[runs.id], runs.jobs into tree, wanted from rota.runs where runs.id = cancel.run;
    if not found then
        select array[]::bigint[], array[jobs.id] into tree, wanted from rota.jobs where jobs.id = cancel.run;
        if not found then
            return null;
        end if;
    end if;

    for look in 1..1000 loop
        missing := array(
            select wish.job
              from unnest(wanted) as wish (job)
             where not exists (select from rota.outcomes where outcomes.job = wish.job)
             except all
            select each.job from unnest(bound) as each (job)
             order by 1);
        exit when missing = '{}' and look > 1;
        insert into rota.cancels (job)
        select wish.job from unnest(missing || tree) as wish (job) order by wish.job
        on conflict do nothing;

        -- First search `queued` by the number that the job had at its start. If that fails, the job has another
        -- number: read the whole lane.
        if deep then
            with gone as (
                delete from rota.queued
                 using unnest(missing) as wish (job)
                 where queued.job = wish.job
                   and (queued.queue, queued.priority) in (
                       select distinct jobs.queue, jobs.priority from rota.jobs where jobs.id = any(missing))
                returning queued.job, queued.attempt
            ),
            ended as (
                insert into rota.outcomes (job, state, attempt)
                select gone.job, 'cancelled', gone.attempt from gone
                returning outcomes.job
            )
            select stopped || array(select ended.job from ended) into stopped;
        else
            with gone as (
                delete from rota.queued
                 using rota.jobs as job
                 where job.id = any(missing)
                   and queued.queue = job.queue and queued.priority = job.priority
                   and queued.seq = job.id and queued.job = job.id
                returning queued.job, queued.attempt
            ),
            ended as (
                insert into rota.outcomes (job, state, attempt)
                select gone.job, 'cancelled', gone.attempt from gone
                returning outcomes.job
            )
            select stopped || array(select ended.job from ended) into stopped;
        end if;
        perform from rota.quarantine where quarantine.job = any(missing) order by quarantine.job for update;
        with gone as (
            delete from rota.sleeping where sleeping.job = any(missing) returning sleeping.job, sleeping.attempt
        ),
        freed as (
            delete from rota.quarantine
             where quarantine.job = any(missing)
            returning quarantine.job, quarantine.attempt
        ),
        ended as (
            insert into rota.outcomes (job, state, attempt)
            select found.job, 'cancelled', found.attempt
              from (select gone.job, gone.attempt from gone
                     union all
                    select freed.job, freed.attempt from freed) as found
            returning outcomes.job
        )
        select stopped || array(select ended.job from ended) into stopped;

        -- Held by a worker. Waiting for a claim is safe only while no other transaction can wait for this one. A
        -- transaction of the job's own code that pins the claim (key share) is not waited for: it may be long, and it
        -- may or may not finish the job.
        here := array(
            select distinct claims.id
              from rota.claims
             cross join lateral unnest(claims.jobs) as member (job)
              join unnest(missing) as wish (job) on wish.job = member.job);
        if waits then
            perform from rota.claims where claims.id = any(here) order by claims.id for no key update;
        else
            perform from rota.claims where claims.id = any(here) for no key update skip locked;
            get diagnostics locked = row_count;
            if locked < cardinality(here) then
                raise exception 'run % is moving; try again', cancel.run using errcode = '40001';
            end if;
        end if;
        here := array(
            select member.job
              from rota.claims
             cross join lateral unnest(claims.jobs) as member (job)
              join unnest(missing) as wish (job) on wish.job = member.job
             where claims.id = any(here));
        held := held or here <> '{}';
        bound := bound || here;

        -- Cancel the runs that these jobs have started. They are searched under the locks: a job found in a claim now
        -- can start no more runs.
        select array_agg(runs.id) into here
          from rota.runs
         where runs.parent = any(wanted)
           and runs.id <> all(tree)
           and not exists (select from rota.outcomes where outcomes.job = runs.id);
        if here is not null and waits then
            tree := tree || here;
            wanted := wanted || array(
                select member.job
                  from rota.runs
                 cross join lateral unnest(runs.jobs) as member (job)
                 where runs.id = any(here));
            continue;
        end if;

        -- These jobs wait for predecessors and finish with them. They are locked together with the rows of the runs,
        -- in the order of ids.
        perform from rota.waiting where waiting.job = any(missing || tree) order by waiting.job for update;
        waits := waits and not found;
        bound := bound || array(select waiting.job from rota.waiting where waiting.job = any(missing));

        deep := true;
        if look = 1000 then
            raise exception 'run % kept moving; try again', cancel.run using errcode = '40001';
        end if;
    end loop;

    select * into passed
      from rota.release_successors(stopped, array_fill('cancelled'::rota.outcome, array[cardinality(stopped)]));
    delete from rota.cancels
     where cancels.job = any(wanted || tree)
       and exists (select from rota.outcomes where outcomes.job = cancels.job);
    perform pg_notify(waiters.listener, waiters.job::text)
       from rota.waiters
      where waiters.job = any(wanted || tree || passed.runs)
        and exists (select from rota.outcomes where outcomes.job = waiters.job);
    perform pg_notify('rota.wake', news.queue) from unnest(passed.queues) as news (queue);
    if held then
        perform pg_notify('rota.wake', '!cancel');
    end if;
    if exists (select from unnest(bound) as each (job)
                where not exists (select from rota.outcomes where outcomes.job = each.job)) then
        return 'requested';
    end if;
    if stopped <> '{}' then
        return 'cancelled';
    end if;
    -- A concurrent retry may have removed the outcome.
    return coalesce((select outcomes.state::text from rota.outcomes where outcomes.job = cancel.run), 'requested');
end
$$;

create function rota.clock() returns timestamp with time zone
language sql stable parallel safe
RETURN statement_timestamp();

create function rota.desired_workers(queue text,
    target double precision DEFAULT 60,
    min_workers integer DEFAULT 0,
    max_workers integer DEFAULT 100,
    concurrency integer DEFAULT NULL::integer) returns integer
language sql stable parallel unsafe
set search_path=pg_catalog, pg_temp
as $$
    select scaled.desired
      from rota.autoscale(target, min_workers, max_workers, concurrency, desired_workers.queue) as scaled
$$;

create function rota.drain(worker bigint) returns text
language plpgsql volatile parallel unsafe
set search_path=pg_catalog, pg_temp
as $$
declare
    answer text;
begin
    update rota.workers
       set drain_requested = coalesce(workers.drain_requested, rota.clock())
     where workers.id = drain.worker
       and workers.state in ('active', 'draining');
    if found then
        perform pg_notify('rota.wake', '!drain');
    end if;
    select workers.state::text into answer from rota.workers where workers.id = drain.worker;
    return answer;
end
$$;

create function rota.fork(run bigint,
    task text,
    trace text DEFAULT NULL::text,
    OUT forked bigint,
    OUT queues text[])
language plpgsql volatile parallel unsafe
set search_path=pg_catalog, pg_temp
as $$
declare
    old  bigint[];
    new  bigint[];
    anew bigint[];
begin
    -- Prevents retention from removing the run before the copy is complete.
    select runs.jobs into old from rota.runs where runs.id = fork.run for key share;
    if not exists (select from rota.jobs where jobs.id = any(old) and jobs.task = fork.task) then
        return;
    end if;
    forked := nextval('rota.ids');
    new := array(select nextval('rota.ids') from unnest(old));

    with recursive open (job) as (
        select job.id
          from rota.jobs as job
          left join rota.outcomes as outcome on outcome.job = job.id
         where job.id = any(old)
           and (job.task = fork.task
                or outcome.state is null
                or outcome.state not in ('succeeded', 'skipped')
                or (outcome.state = 'skipped' and outcome.error is not null))
         union
        select child.job
          from open
          join rota.jobs as job on job.id = open.job
         cross join lateral unnest(job.successors) as child (job)
         where child.job <> fork.run
    ),
    pair as materialized (
        select pair.old, pair.new, open.job is not null as open
          from unnest(old, new) as pair (old, new)
          left join open on open.job = pair.old
    ),
    written as (
        insert into rota.runs (id, flow, forked_from, input, jobs)
        select forked, runs.flow, runs.id, runs.input, new from rota.runs where runs.id = fork.run
    ),
    copied as (
        insert into rota.jobs (id, run, expires, priority, task, queue, args, options, rule, successors, inputs, trace)
        select pair.new, forked, null, job.priority, job.task, job.queue, job.args, job.options, job.rule,
               (select array_agg(coalesce(other.new, forked) order by child.number)
                  from unnest(job.successors) with ordinality as child (job, number)
                  left join pair as other on other.old = child.job),
               (select json_object_agg(input.key, other.new)
                  from json_each_text(job.inputs) as input
                  join pair as other on other.old = input.value::bigint),
               fork.trace
          from pair
          join rota.jobs as job on job.id = pair.old
    ),
    kept as (
        insert into rota.outcomes (job, worker, at, seconds, state, attempt, result)
        select pair.new, outcome.worker, outcome.at, outcome.seconds, outcome.state, outcome.attempt,
               outcome.result
          from pair
          join rota.outcomes as outcome on outcome.job = pair.old
         where not pair.open
    )
    select array_agg(pair.new) into anew from pair where pair.open;

    select laid.queues into queues from rota.place_job(forked, anew, 1::smallint) as laid;
end
$$;

create function rota.fork_job(run bigint,
    step text,
    args json,
    trace text DEFAULT NULL::text,
    OUT forked bigint,
    OUT queue text)
language plpgsql volatile parallel unsafe
set enable_bitmapscan=off
set enable_mergejoin=off
set enable_seqscan=off
set jit=off
set search_path=pg_catalog, pg_temp
as $$
declare
    first integer;
begin
    -- Prevents retention from removing the run before the copy is complete: it skips locked rows.
    perform from rota.outcomes where outcomes.job = fork_job.run for key share;
    perform from rota.jobs where jobs.id = fork_job.run and jobs.run is null;
    if not found then
        return;
    end if;
    select min(steps.position) into first
      from rota.steps
     where steps.job = fork_job.run
       and steps.kind in ('step', 'sleep', 'wait')
       and steps.name = fork_job.step;
    if first is null then
        return;
    end if;
    forked := nextval('rota.ids');
    insert into rota.jobs (id, priority, task, queue, args, options, forked_from, trace)
    select forked, jobs.priority, jobs.task, jobs.queue, coalesce(fork_job.args, jobs.args), jobs.options, jobs.id,
           fork_job.trace
      from rota.jobs
     where jobs.id = fork_job.run
    returning jobs.queue into fork_job.queue;
    insert into rota.steps (job, kind, name, number, position, main_branch, branch_key, open, tries, at, seconds,
                            wake_at, result, error)
    select forked, steps.kind, steps.name, steps.number, steps.position, steps.main_branch, steps.branch_key,
           steps.open,
           steps.tries, steps.at, steps.seconds, steps.wake_at, steps.result, steps.error
      from rota.steps
     where steps.job = fork_job.run
       and steps.position < first;
    -- Copy the signals that the copied entries have received.
    insert into rota.signals (run, name, at, payload)
    select forked, signals.name, signals.at, signals.payload
      from rota.signals
     where signals.run = fork_job.run
       and signals.at is not null
       and exists (select from rota.steps
                    where steps.job = forked and steps.kind = 'wait' and steps.name = signals.name);
    insert into rota.queued (seq, job, priority, queue, task)
    select jobs.id, jobs.id, jobs.priority, jobs.queue, jobs.task from rota.jobs where jobs.id = forked;
end
$$;

create function rota.place_job(run bigint,
    anew bigint[],
    attempt smallint,
    OUT queues text[],
    OUT runs bigint[],
    OUT rest boolean)
language plpgsql volatile parallel unsafe
set search_path=pg_catalog, pg_temp
as $$
begin
    with member as materialized (
        select job.id, job.run, job.rule, job.priority, job.queue, job.task, job.successors,
               job.id = any(place_job.anew) as open
          from rota.jobs as job
         where job.id = any((select runs.jobs from rota.runs where runs.id = place_job.run)::bigint[])
    ),
    link as (
        select link.job, count(*) filter (where link.open) as open,
               count(*) filter (where link.skipped) as skipped
          from (select child.job, member.open, outcome.state = 'skipped' as skipped
                  from member
                 cross join lateral unnest(member.successors) as child (job)
                  left join rota.outcomes as outcome on outcome.job = member.id
                 union all
                -- Flows that are parts of this run.
                select place_job.run, not exists (select from rota.outcomes where outcomes.job = part.id), false
                  from rota.runs as whole
                  join rota.runs as part on part.parent = whole.parent and part.successors = array[whole.id]
                 where whole.id = place_job.run) as link
         group by link.job
    )
    insert into rota.waiting (job, open, skipped, attempt, rule, priority, queue, task)
    -- One more than the open predecessors: the call below counts it down when all rows exist.
    select member.id, coalesce(link.open, 0) + 1, coalesce(link.skipped, 0),
           coalesce((select max(attempts.attempt) + 1 from rota.attempts where attempts.job = member.id), 1),
           member.rule, member.priority, member.queue, member.task
      from member
      left join link on link.job = member.id
     where member.open
     union all
    select link.job, link.open, 0, place_job.attempt, null, null, null, null
      from link
     where link.job = place_job.run;

    select passed.* into queues, runs, rest from rota.release_successors(null, due => place_job.anew) as passed;
end
$$;

create function rota.queue_depths(only_queue text DEFAULT NULL::text,
    OUT queue text,
    OUT queued bigint,
    OUT exact boolean,
    OUT oldest_seconds double precision)
language plpgsql stable parallel unsafe
set enable_bitmapscan=off
set enable_seqscan=off
set jit=off
set search_path=pg_catalog, pg_temp
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

create function rota.reap(claim bigint,
    which bigint[] DEFAULT NULL::bigint[],
    OUT jobs bigint[],
    OUT queues text[],
    OUT runs bigint[],
    OUT rest boolean)
language plpgsql volatile parallel unsafe
set enable_bitmapscan=off
set enable_mergejoin=off
set enable_seqscan=off
set jit=off
set search_path=pg_catalog, pg_temp
as $$
declare
    held     record;
    owner    record;
    story    text;
    unwanted bigint[];
    news     text[];
begin
    jobs := '{}';
    queues := '{}';
    runs := '{}';
    rest := false;
    -- Skip a locked claim: it is being completed, or a transaction of the user's code pins it.
    select claims.* into held from rota.claims where claims.id = reap.claim for update skip locked;
    if not found then
        return;
    end if;
    select workers.* into owner from rota.workers where workers.id = held.worker;
    if held.expires is not null then
        if held.expires > rota.clock() then
            return;
        end if;
        story := 'its hold ran out while worker ' || held.worker || ' had it';
    elsif owner.state in ('active', 'draining') then
        return;
    else
        story := 'worker ' || held.worker
              || coalesce(' (' || owner.host || ', process ' || owner.pid || ')', '') || ' was lost while it ran';
    end if;

    with member as materialized (
        select member.job, member.attempt, member.lost, member.seq,
               held.expires is not null or coalesce(member.job = any(owner.charged_jobs), false) as charged,
               coalesce(member.job = any(owner.doubtful_jobs), false) as doubtful,
               exists (select from rota.cancels where cancels.job = member.job) as unwanted
          from unnest(held.jobs, held.attempts, held.lost, held.seqs) as member (job, attempt, lost, seq)
         where reap.which is null or member.job = any(reap.which)
    ),
    ended as (
        insert into rota.outcomes (job, worker, state, attempt)
        select member.job, held.worker, 'cancelled', member.attempt
          from member
         where member.unwanted
        on conflict (job) do nothing
    ),
    obeyed as (
        delete from rota.cancels
         where cancels.job = any(array(select member.job from member where member.unwanted))
    ),
    kept as (
        insert into rota.attempts (job, worker, state, attempt, error)
        select member.job, held.worker, 'failed', member.attempt,
               json_build_object('type', 'rota.errors.WorkerLost', 'message', story, 'traceback', '',
                                 'attempt', member.attempt)
          from member
         where (member.charged or member.doubtful) and not member.unwanted
    ),
    put as (
        insert into rota.queued (seq, job, priority, attempt, lost, queue, task)
        select member.seq, member.job, job.priority,
               case when member.charged or member.doubtful then member.attempt + 1 else member.attempt end,
               case when owner.state = 'stopped' and not member.charged then member.lost
                    when member.charged and member.lost >= 0 then -member.lost - 3
                    -- It was lost together with other jobs before; that loss is now attributed to it.
                    when member.charged and member.lost >= -2 then member.lost - 3
                    when member.doubtful and member.lost = -2 then -4
                    when member.charged or member.doubtful then member.lost - 1
                    when member.lost > 0 then -member.lost - 2
                    when member.lost = -3 then -4
                    else greatest(member.lost - 1, least(member.lost, -2)) end,
               job.queue, job.task
          from member
         cross join lateral (
               select jobs.priority, jobs.queue, jobs.task from rota.jobs where jobs.id = member.job offset 0
               ) as job
         where not member.unwanted
        returning queued.queue
    )
    select array(select member.job from member), array(select member.job from member where member.unwanted),
           array(select distinct put.queue from put)
      into reap.jobs, unwanted, news;

    if reap.which is null then
        delete from rota.claims where claims.id = held.id;
    else
        with rest as (
            select array_agg(member.job order by member.number) as jobs,
                   array_agg(member.attempt order by member.number) as attempts,
                   array_agg(member.lost order by member.number) as lost,
                   array_agg(member.seq order by member.number) as seqs
              from unnest(held.jobs, held.attempts, held.lost, held.seqs)
                   with ordinality as member (job, attempt, lost, seq, number)
             where member.job <> all(reap.jobs)
        ),
        emptied as (
            delete from rota.claims using rest where claims.id = held.id and rest.jobs is null
        )
        update rota.claims
           set jobs = rest.jobs, attempts = rest.attempts, lost = rest.lost, seqs = rest.seqs
          from rest
         where claims.id = held.id and rest.jobs is not null;
    end if;

    select news || passed.queues, passed.runs, passed.rest into queues, runs, rest
      from rota.release_successors(unwanted, array_fill('cancelled'::rota.outcome,
                                                        array[cardinality(unwanted)])) as passed;
end
$$;

create function rota.release(run bigint) returns integer
language plpgsql volatile parallel unsafe
set search_path=pg_catalog, pg_temp
as $$
declare
    members  bigint[] := array[release.run] || (select runs.jobs from rota.runs where runs.id = release.run);
    released integer;
begin
    -- In the order of ids, as `rota.cancel` locks them.
    perform from rota.quarantine where quarantine.job = any(members) order by quarantine.job for update;
    with gone as (
        delete from rota.quarantine
         where quarantine.job = any(members)
        returning quarantine.*
    ),
    put as (
        insert into rota.queued (seq, job, priority, attempt, queue, task)
        select nextval('rota.ids'), gone.job, gone.priority, gone.attempt, gone.queue, gone.task
          from (select gone.* from gone order by gone.job) as gone
        returning queued.queue
    ),
    told as (
        select pg_notify('rota.wake', news.queue)
          from (select distinct put.queue from put) as news
    )
    select (select count(*) from put) + 0 * (select count(*) from told) into released;
    return released;
end
$$;

create function rota.release_lock(name text,
    slot integer,
    operator text,
    token bigint DEFAULT NULL::bigint) returns json
language plpgsql volatile parallel unsafe
set lock_timeout=2s
set search_path=pg_catalog, pg_temp
as $$
declare
    held   record;
    holder json;
begin
    select locks.* into held
      from rota.locks
     where locks.name = release_lock.name
       and locks.slot = release_lock.slot
       and locks.instance is not null
       and (release_lock.token is null or locks.token = release_lock.token)
       for update;
    if not found then
        return null;
    end if;
    holder := json_build_object('token', held.token, 'instance', held.instance, 'host', held.host, 'pid', held.pid,
                                'label', held.label, 'acquired', held.acquired, 'expires', held.expires);
    update rota.locks
       set instance = null, token = nextval('rota.tokens'), awaited_since = null
     where locks.name = held.name
       and locks.slot = held.slot;
    insert into rota.audit (operator, action, subject, detail)
    values (release_lock.operator, 'release lock', release_lock.name || case when held.slot > 0 then ' permit '
            || held.slot else '' end,
            holder);
    perform pg_notify('rota.locks', release_lock.name);
    return holder;
end
$$;

create function rota.release_pending(most integer,
    OUT queues text[],
    OUT runs bigint[],
    OUT rest boolean)
language plpgsql volatile parallel unsafe
set enable_bitmapscan=off
set enable_mergejoin=off
set enable_seqscan=off
set jit=off
set search_path=pg_catalog, pg_temp
as $$
declare
    ended bigint[];
    kinds rota.outcome[];
begin
    with taken as (
        delete from rota.pending_releases
         where pending_releases.job = any(array(
               select pending_releases.job
                 from rota.pending_releases
                order by pending_releases.job
                limit most
                  for update skip locked))
        returning pending_releases.job, pending_releases.kind
    )
    select array_agg(taken.job), array_agg(taken.kind) into ended, kinds from taken;
    if ended is null then
        queues := '{}';
        runs := '{}';
        rest := false;
        return;
    end if;
    select passed.* into queues, runs, rest from rota.release_successors(ended, kinds, with_runs => true) as passed;
end
$$;

create function rota.release_successors(ended bigint[],
    kinds rota.outcome[] DEFAULT NULL::rota.outcome[],
    with_runs boolean DEFAULT false,
    due bigint[] DEFAULT NULL::bigint[],
    OUT queues text[],
    OUT runs bigint[],
    OUT rest boolean)
language plpgsql volatile parallel unsafe
set search_path=pg_catalog, pg_temp
as $$
declare
    waits   boolean := true;                            -- first round: wait for locks
    there   integer;
    others  integer;                                    -- upper bound of targets that keep open predecessors
    whom    bigint[];                                   -- successors of this round; the arrays below run parallel to it
    parents integer[];
    faults  integer[];
    stops   integer[];
    skips   integer[];
    news    text[];
    over    bigint[];
begin
    queues := '{}';
    runs := '{}';
    rest := false;
    loop
        if release_successors.due is not null then
            select array_agg(each.job order by each.job), array_agg(1), array_agg(0), array_agg(0), array_agg(0)
              into whom, parents, faults, stops, skips
              from unnest(release_successors.due) as each (job);
            release_successors.due := null;
        else
            with node as materialized (
                select found.run, found.successors, given.kind
                  from unnest(release_successors.ended, release_successors.kinds) as given (job, kind)
                 cross join lateral (
                       select jobs.run, jobs.successors from rota.jobs where jobs.id = given.job
                        union all
                       select null, runs.successors
                         from rota.runs
                        where release_successors.with_runs and runs.id = given.job
                       offset 0
                       ) as found
            ),
            link as (
                select child.job, 1 as parent,
                       case when child.job = node.run then null else node.kind end as kind
                  from node
                 cross join lateral unnest(node.successors) as child (job)
                 union all
                -- A failed or cancelled job counts for its run, even if the run is not its direct successor.
                select node.run, 0, node.kind
                  from node
                 where node.kind in ('failed', 'cancelled') and node.run is not null
            ),
            total as (
                select link.job, sum(link.parent)::int as parents,
                       count(*) filter (where link.kind = 'failed')::int as faults,
                       count(*) filter (where link.kind = 'cancelled')::int as stops,
                       count(*) filter (where link.kind = 'skipped')::int as skips
                  from link
                 group by link.job
            )
            select array_agg(total.job), array_agg(total.parents), array_agg(total.faults),
                   array_agg(total.stops), array_agg(total.skips)
              into whom, parents, faults, stops, skips
              from total;
        end if;
        exit when whom is null;

        -- Lock in the order of ids. The statement after this one sees counts and cancel requests as of these locks.
        if waits then
            select count(*) filter (where row.open > due.parents) into others
              from (select due.job, due.parents
                      from unnest(whom, parents) as due (job, parents) order by due.job) as due
             cross join lateral (
                   select waiting.open from rota.waiting where waiting.job = due.job for update offset 0) as row;
        else
            select count(*) into there from rota.waiting where waiting.job = any(whom);
            perform from rota.waiting where waiting.job = any(whom) for update skip locked;
            get diagnostics others = row_count;
            if others < there then
                insert into rota.pending_releases (job, kind)
                select each.job, each.kind from unnest(release_successors.ended,
                                                       release_successors.kinds) as each (job, kind);
                rest := true;
                exit;
            end if;
        end if;

        with due as (
            select * from unnest(whom, parents, faults, stops, skips)
                       as due (job, parents, faults, stops, skips)
        ),
        counted as (
            update rota.waiting
               set open = waiting.open - due.parents, failed = waiting.failed + due.faults,
                   cancelled = waiting.cancelled + due.stops, skipped = waiting.skipped + due.skips
              from due
             where others > 0
               and waiting.job = due.job
               and waiting.open > due.parents
        ),
        through as (
            delete from rota.waiting
             using due
             where waiting.job = due.job
               and waiting.open <= due.parents
            returning waiting.job, waiting.rule, waiting.priority, waiting.attempt, waiting.queue, waiting.task,
                      waiting.failed + due.faults as failed, waiting.cancelled + due.stops as cancelled,
                      waiting.skipped + due.skips as skipped
        ),
        wished as (
            select through.*,
                   (select exists (select from rota.cancels))
                       and exists (select from rota.cancels where cancels.job = through.job) as unwanted
              from through
        ),
        judged as materialized (
            select wished.*,
                   not unwanted
                   and case wished.rule
                            when 'all_succeeded' then failed + cancelled + skipped = 0
                            when 'none_failed' then failed + cancelled = 0
                            when 'all_done' then true
                            when 'any_failed' then failed > 0
                       end as goes,
                   -- How it counts for its own successors. Only a run has no rule.
                   case when wished.rule is not null and unwanted then 'cancelled'
                        when failed > 0 then 'failed'
                        when cancelled > 0 then 'cancelled'
                        when wished.rule is null then 'succeeded'
                        else 'skipped'
                   end::rota.outcome as kind
              from wished
        ),
        put as (
            insert into rota.queued (seq, job, priority, attempt, queue, task)
            select nextval('rota.ids'), judged.job, judged.priority, judged.attempt, judged.queue, judged.task
              from (select judged.* from judged where judged.goes order by judged.job) as judged
            returning queued.queue
        ),
        skipped as (
            insert into rota.outcomes (job, state, attempt, error)
            select judged.job, case when judged.unwanted then 'cancelled' else 'skipped' end::rota.outcome,
                   judged.attempt,
                   case when judged.kind <> 'skipped' and not judged.unwanted then
                        json_build_object(
                            'type', 'Skipped', 'message', 'a job it waits for ' ||
                             case judged.kind when 'failed' then 'failed' else 'was cancelled' end,
                            'traceback', '', 'attempt', judged.attempt) end
              from judged
             where judged.rule is not null and not judged.goes
        ),
        ended as (
            insert into rota.outcomes (job, state, attempt)
            select judged.job,
                   -- A run that failed after a cancel request is recorded as cancelled.
                   case when judged.kind = 'failed' and judged.unwanted then 'cancelled' else judged.kind end,
                   judged.attempt
              from judged
             where judged.rule is null
        ),
        obeyed as (
            delete from rota.cancels
             where cancels.job = any(array(select judged.job from judged where judged.unwanted))
        )
        select array(select distinct put.queue from put),
               array_agg(judged.job) filter (where judged.rule is null),
               array_agg(judged.job), array_agg(judged.kind)
          into news, over, release_successors.ended, release_successors.kinds
          from judged
         where judged.rule is null or not judged.goes;

        queues := queues || news;
        runs := runs || over;
        exit when release_successors.ended is null;
        waits := false;
        release_successors.with_runs := true;
    end loop;
end
$$;

create function rota.reserve_key(task text,
    key text,
    run bigint,
    unique_for interval,
    unique_open boolean) returns bigint
language plpgsql volatile parallel unsafe
set lock_timeout=2s
set search_path=pg_catalog, pg_temp
as $$
declare
    holder bigint;
begin
    loop
        begin
            insert into rota.keys as held (task, key, run, expires, while_open)
            values (reserve_key.task, reserve_key.key, reserve_key.run,
                    rota.clock() + reserve_key.unique_for, reserve_key.unique_open)
            on conflict on constraint keys_pkey do update
               set run = excluded.run, expires = excluded.expires, while_open = excluded.while_open
             where held.expires <= rota.clock()
                or (held.while_open
                    and exists (select from rota.outcomes where outcomes.job = held.run));
        exception when lock_not_available then
            raise exception 'key % of task % is held by an open transaction', reserve_key.key, reserve_key.task
                using errcode = 'RT001';
        end;
        if found then
            return reserve_key.run;
        end if;
        -- A new statement, because the snapshot of the insert may be older than the conflicting row.
        select held.run into holder
          from rota.keys as held
         where held.task = reserve_key.task and held.key = reserve_key.key;
        if found then
            return holder;
        end if;
    end loop;
end
$$;

create function rota.retry(run bigint,
    attempt smallint DEFAULT NULL::smallint) returns text[]
language plpgsql volatile parallel unsafe
set enable_bitmapscan=off
set enable_mergejoin=off
set enable_seqscan=off
set jit=off
set lock_timeout=2s
set search_path=pg_catalog, pg_temp
as $$
declare
    ended   record;
    members bigint[];
    calls   boolean;
    whole   bigint;
    anew    bigint[];
    answer  text[];
begin
    select jobs.run into whole from rota.jobs where jobs.id = retry.run;
    if whole is not null then
        raise exception 'job % is a part of run %; try that one again', retry.run, whole
            using errcode = 'RT003';
    end if;
    select waiting.job into whole
      from rota.runs
      join rota.waiting on waiting.job = any(runs.successors)
     where runs.id = retry.run;
    if found then
        raise exception 'run % is a part of run %, which is still open; try that one again when it has ended',
            retry.run, whole using errcode = 'RT003';
    end if;
    -- A second, concurrent retry waits here and then finds no outcome.
    select outcomes.state, outcomes.attempt into ended
      from rota.outcomes where outcomes.job = retry.run for update;
    if not found or ended.state = 'succeeded' then
        return null;
    end if;

    select runs.jobs, runs.flow is null into members, calls from rota.runs where runs.id = retry.run;
    if not found then
        anew := array[retry.run];
    else
        with recursive undone (job) as (
            select outcomes.job
              from rota.outcomes
             where outcomes.job = any(members)
               and (outcomes.state in ('failed', 'cancelled', 'expired')
                    or (outcomes.state = 'skipped' and outcomes.error is not null))
             union
            select child.job
              from undone
              join rota.jobs as job on job.id = undone.job
             cross join lateral unnest(job.successors) as child (job)
             where not calls and child.job <> retry.run
        )
        select array_agg(undone.job) into anew from undone;

        -- The inputs of the direct successors may change, so these make their calls and run their steps again.
        if not calls then
            update rota.runs
               set number = null
             where runs.parent = any(array(
                   select child.job
                     from rota.jobs as job
                    cross join lateral unnest(job.successors) as child (job)
                    where job.id = any(anew)))
               and runs.number is not null;
            delete from rota.steps
             where steps.job = any(array(
                   select child.job
                     from rota.jobs as job
                    cross join lateral unnest(job.successors) as child (job)
                    where job.id = any(anew) and child.job <> retry.run));
        end if;
    end if;

    with gone as (
        delete from rota.outcomes
         where outcomes.job = any(anew) or outcomes.job = retry.run
        returning outcomes.*
    ),
    kept as (
        insert into rota.attempts (job, claim, worker, at, seconds, state, attempt, result, error)
        select gone.job, gone.claim, gone.worker, gone.at, gone.seconds, gone.state, gone.attempt, gone.result,
               gone.error
          from gone
         where gone.state <> 'skipped'
    )
    delete from rota.cancels where cancels.job = any(array(select gone.job from gone));

    if members is not null then
        -- Flows that are parts of this run have runs of their own.
        select array_agg(news.queue) into answer
          from rota.runs as whole
          join rota.runs as part on part.parent = whole.parent and part.successors = array[whole.id]
         cross join lateral unnest(rota.retry(part.id)) as news (queue)
         where whole.id = retry.run;
        select answer || laid.queues into answer from rota.place_job(
               retry.run, coalesce(anew, '{}'),
               coalesce(retry.attempt, (ended.attempt + 1)::smallint)) as laid;
        return answer;
    end if;
    insert into rota.queued (seq, job, priority, attempt, queue, task)
    select nextval('rota.ids'), job.id, job.priority,
           (select max(attempts.attempt) + 1 from rota.attempts where attempts.job = job.id),
           job.queue, job.task
      from rota.jobs as job
     where job.id = retry.run
    returning array[queued.queue] into answer;
    return answer;
end
$$;

create function rota.signal(run bigint,
    name text,
    payload json DEFAULT 'null'::json) returns text
language plpgsql volatile parallel unsafe
set enable_bitmapscan=off
set enable_mergejoin=off
set enable_seqscan=off
set jit=off
set lock_timeout=2s
set search_path=pg_catalog, pg_temp
as $$
declare
    whole   bigint;
    waiting bigint[];
    queues  text[];
begin
    select coalesce(jobs.run, jobs.id) into whole from rota.jobs where jobs.id = signal.run;
    if not found then
        select runs.id into whole from rota.runs where runs.id = signal.run;
        if not found then
            return null;
        end if;
    end if;
    if signal.name is null or signal.name = '' or length(signal.name) > 200 then
        raise exception 'a signal''s name has 1 to 200 letters' using errcode = 'RT003';
    end if;
    if exists (select from rota.outcomes where outcomes.job = whole) then
        return 'ended';
    end if;

    insert into rota.signals as known (run, name, at, payload)
    values (whole, signal.name, rota.clock(), coalesce(signal.payload, 'null'))
    on conflict on constraint signals_pkey do update
       set at = excluded.at, payload = excluded.payload
     where known.at is null
    returning known.jobs into waiting;
    if not found then
        return 'known';
    end if;

    -- A waiting job locks the signal before it is suspended. So it is in `sleeping` by now, or it will see this
    -- signal.
    perform from rota.sleeping
      where sleeping.job = any(waiting) and signal.name = any(sleeping.signals)
      order by sleeping.job
        for update;
    with gone as (
        delete from rota.sleeping
         where sleeping.job = any(waiting) and signal.name = any(sleeping.signals)
        returning sleeping.*
    ),
    put as (
        insert into rota.queued (seq, job, priority, attempt, lost, queue, task)
        select nextval('rota.ids'), gone.job, gone.priority, gone.attempt, gone.lost, gone.queue, gone.task
          from (select gone.* from gone order by gone.job) as gone
        returning queued.queue
    )
    select array_agg(distinct put.queue) into queues from put;
    perform pg_notify('rota.wake', news.queue) from unnest(queues) as news (queue);
    return 'sent';
end
$$;

create function rota.start(task text,
    args json DEFAULT '{}'::json,
    queue text DEFAULT 'default'::text,
    priority integer DEFAULT 0,
    key text DEFAULT NULL::text,
    unique_for interval DEFAULT NULL::interval,
    unique_open boolean DEFAULT false,
    at timestamp with time zone DEFAULT NULL::timestamp with time zone,
    delay interval DEFAULT NULL::interval,
    expires timestamp with time zone DEFAULT NULL::timestamp with time zone,
    expires_in interval DEFAULT NULL::interval,
    options json DEFAULT NULL::json,
    notify boolean DEFAULT true,
    trace text DEFAULT NULL::text,
    OUT run bigint,
    OUT created boolean)
language plpgsql volatile parallel unsafe
set lock_timeout=2s
set search_path=pg_catalog, pg_temp
as $$
declare
    fresh bigint := nextval('rota.ids');
begin
    if start.priority not between 0 and 9 then
        raise exception 'priority must be from 0 to 9, not %', start.priority using errcode = 'RT003';
    end if;
    if json_typeof(start.args) <> 'object' then
        raise exception 'args must be a JSON object, the task''s arguments by name, not a %',
            json_typeof(start.args) using errcode = 'RT003';
    end if;
    if start.trace !~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then
        raise exception 'trace must be a W3C traceparent such as '
            '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01, not %', left(start.trace, 60)
            using errcode = 'RT003';
    end if;

    run := fresh;
    created := true;

    if start.key is not null then
        start.run := rota.reserve_key(
            start.task, start.key, start.run, start.unique_for, start.unique_open);
        if start.run <> fresh then
            created := false;
            return;
        end if;
    end if;

    start.at := coalesce(start.at, rota.clock() + start.delay);
    insert into rota.jobs (id, expires, priority, task, queue, key, args, options, trace)
    values (start.run, coalesce(start.expires, rota.clock() + start.expires_in),
            start.priority, start.task, start.queue, start.key, start.args, start.options, start.trace);

    if start.at > rota.clock() then
        insert into rota.sleeping (job, wake_at, priority, queue, task)
        values (start.run, start.at, start.priority, start.queue, start.task);
    else
        insert into rota.queued (seq, job, priority, queue, task)
        values (start.run, start.run, start.priority, start.queue, start.task);
    end if;

    if start.notify then
        perform pg_notify('rota.wake', start.queue);
    end if;
end
$$;

create function rota.workers_needed(arrival_rate double precision,
    mean_seconds double precision,
    backlog double precision,
    running double precision,
    target double precision,
    concurrency double precision,
    min_workers integer,
    max_workers integer) returns integer
language sql immutable parallel safe
RETURN LEAST(GREATEST((ceil((LEAST(((GREATEST((GREATEST(arrival_rate, (0.0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000001)::double precision) * GREATEST(mean_seconds, (0.0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000001)::double precision)), running) + (backlog * LEAST((1)::double precision, (GREATEST(mean_seconds, (0.0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000001)::double precision) / GREATEST(target, (0.001)::double precision))))) / GREATEST(concurrency, (1)::double precision)), ('1000000000'::numeric)::double precision) - (0.000000001)::double precision)))::integer, CASE WHEN ((backlog > (0)::double precision) OR (running > (0)::double precision)) THEN 1 ELSE 0 END, min_workers), max_workers);

comment on function rota.desired_workers(pg_catalog.text,double precision,integer,integer,integer) is 'How many workers a queue wants: one number, for KEDA and the like. Public and stable.';

comment on view rota.job_state is 'Where each job is: waiting, queued, sleeping, running, quarantined, succeeded, failed, cancelled, expired or skipped. Public and stable.';

comment on view rota.run_state is 'Every run: its flow''s or task''s name, and running, succeeded, failed or cancelled for a flow, the state of its job for a task. Public and stable.';
