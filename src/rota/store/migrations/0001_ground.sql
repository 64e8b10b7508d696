-- breaking: yes
-- Jobs, the tables a job can be in, and the graphs that jobs form.
--
-- The state of a job is the table that holds its id. The row in `jobs` is written once; exactly one of these holds the
-- job at any time:
--
--   queued      can be claimed now                                  claiming deletes the row
--   sleeping    waits for a time or a signal: delay, retry, sleep   waking moves it to `queued`
--   waiting     waits for other jobs of its run                     the last predecessor to finish moves it on
--   claims      held by a worker, many jobs per row                 the array `jobs` alone decides the holder
--   quarantine  its workers were lost too often                     an operator releases or cancels it
--   outcomes    finished, one permanent row per job                 the primary key prevents a second outcome
--
-- Each move between these tables is one statement or one short transaction, so every snapshot finds a job in exactly
-- one of them. The view `rota.job_state` returns the state as a word. It is stable: it does not change when the tables
-- do.

-- Return the current time. Statements compare and set times by this clock only; tests replace it.
create function rota.clock() returns timestamptz
language sql stable parallel safe
return statement_timestamp();

-- Names (task, queue, key) are compared byte by byte, independent of the database's locale. This is faster, and the
-- same on every server.

-- Ids of jobs and positions in the queue. A job that is queued at creation has its own id as `seq`; a job that returns
-- to the queue gets the next number.
create sequence rota.ids;

create type rota.worker_state as enum ('active', 'draining', 'stopped', 'dead');

-- Registered workers, including those that ended recently. Every heartbeat updates the row in place (HOT): no column
-- that changes is indexed.
create table rota.workers (
    id              bigint generated always as identity primary key,
    host            text not null,
    pid             integer not null,
    version         text not null,                      -- application version, as configured by the user
    engine          text not null default '',           -- version of Rota
    queues          text[] not null,                    -- queues it claims from
    tasks           text[] not null,                    -- tasks it can run
    schedules       text[] not null default '{}',       -- schedules its code declares
    capacity        integer not null,                   -- number of job slots
    metadata        json not null default '{}',         -- set by the user
    session_lock    integer,                            -- advisory lock that the heartbeat connection holds, if any
    state           rota.worker_state not null default 'active',
    running         integer not null default 0,         -- jobs running at the last heartbeat
    lag             real not null default 0,            -- delay of its event loop at the last heartbeat, in seconds
    started         timestamptz not null default rota.clock(),
    last_beat       timestamptz not null default rota.clock(),
    beats           bigint not null default 0,          -- heartbeat counter; observers compare it, because it rises
                                                        -- even if the clock stops
    drain_requested timestamptz,                        -- when an operator requested a drain
    ended           timestamptz,                        -- when it stopped or was declared dead
    charged_jobs    bigint[],                           -- jobs it held when it died and that caused the death
    doubtful_jobs   bigint[]                            -- jobs it held when it died and that may have caused the death
) with (fillfactor = 50);

-- Tasks of a worker that has too many to send with every claim.
create table rota.worker_tasks (
    worker       bigint not null,
    task         text collate "C" not null,
    prefetchable boolean not null,                      -- has more than one attempt, so the worker may claim it before
                                                        -- a slot is free
    primary key (worker, task)
);

-- A skipped job with an error was skipped because of a failure or a cancellation; without an error, by its rule.
create type rota.outcome as enum ('succeeded', 'failed', 'cancelled', 'expired', 'skipped');

-- Condition on the outcomes of the predecessors under which a job runs; otherwise it is skipped.
create type rota.rule as enum ('all_succeeded', 'none_failed', 'all_done', 'any_failed');

-- Jobs, one row each, written once: the task, its arguments, queue, priority and policy.
create table rota.jobs (
    id          bigint primary key default nextval('rota.ids'),
    run         bigint,                                 -- null: started alone; its run has the same id
    created     timestamptz not null default rota.clock(),
    expires     timestamptz,                            -- not started after this time
    priority    smallint not null default 0 check (priority between 0 and 9),
                                                        -- 9 is claimed first
    task        text collate "C" not null,
    queue       text collate "C" not null,
    key         text collate "C",                       -- idempotency key
    args        json not null,                          -- arguments by name, a JSON object
    options     json,                                   -- set by `options(…)`, beyond the task's own policy
    rule        rota.rule,
    successors  bigint[],                               -- jobs of its run that depend on it, or the run itself
    inputs      json,                                   -- argument name → id of the job that supplies it with its
                                                        -- result
    forked_from bigint,                                 -- run that this one was forked from
    trace       text                                    -- position of its start in a trace, as a W3C traceparent
);

-- Runs of more than one job: of a flow, or of the child runs that a job starts in one call. A job started alone has no
-- row here. A run waits and finishes as a job does: a row in `waiting`, then one in `outcomes`.
create table rota.runs (
    id          bigint primary key default nextval('rota.ids'),
    created     timestamptz not null default rota.clock(),
    flow        text collate "C",                       -- null: the calls of a job
    key         text collate "C",                       -- idempotency key
    parent      bigint,                                 -- job that started this run
    number      integer,                                -- number of the call in that job
    forked_from bigint,                                 -- run that this one was forked from
    input       json not null,
    jobs        bigint[] not null,                      -- ids of its jobs
    successors  bigint[]                                -- run that this one is a part of
);
create unique index runs_parent on rota.runs (parent, number) where parent is not null;

-- `lost`, in this and all other tables: how many workers the job has crashed, as far as is known. A negative value
-- marks a suspect: a job that was running when its worker was lost. A suspect is alone in its claim, and is judged
-- before it runs.
--
--    n ≥ 0               not a suspect; n workers crashed because of it
--   -1                   was lost once, together with other jobs
--   -2                   was lost again, together with other jobs
--   -n - 2 (n ≥ 1)       n workers crashed because of it
--
-- Suspects that were lost once (-1 and -3) run like any other job. All other suspects are grave: only jobs that have
-- already run for a while may run beside them.
--
-- Jobs that can be claimed now, in order. Claiming deletes the row.
create table rota.queued (
    seq      bigint not null,                           -- position in the lane: lower is claimed first
    job      bigint not null,
    priority smallint not null,
    attempt  smallint not null default 1,
    lost     smallint not null default 0,               -- number of crashes; negative: a suspect
    queue    text collate "C" not null,
    task     text collate "C" not null
) with (
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.5
);
create index queued_order on rota.queued (queue, priority, seq);
-- Finds suspects without reading the other jobs: each is claimed alone.
create index queued_suspects on rota.queued (priority desc, seq) where lost < 0;

-- Jobs that wait for a time or a signal: a delay, a retry, a sleep.
create table rota.sleeping (
    job      bigint primary key,
    wake_at  timestamptz not null,
    priority smallint not null,
    attempt  smallint not null default 1,
    lost     smallint not null default 0,
    queue    text collate "C" not null,
    task     text collate "C" not null,
    signals  text[],                                    -- also woken by the first of these signals, before `wake_at`
    since    timestamptz not null default rota.clock()
);
create index sleeping_wake_at on rota.sleeping (wake_at);

-- Jobs and runs that wait for their predecessors to finish. The counts change only under the row's lock, and rows are
-- locked in the order of ids. If the last two predecessors finish at the same time, the second transaction sees the
-- count of the first.
create table rota.waiting (
    job       bigint primary key,
    open      integer not null check (open > 0),        -- predecessors that have not finished
    failed    integer not null default 0,               -- predecessors that failed, or were skipped because of a
                                                        -- failure
    cancelled integer not null default 0,               -- predecessors that were cancelled
    skipped   integer not null default 0,               -- predecessors that were skipped by their rule
    attempt   smallint not null default 1,
    rule      rota.rule,                                -- null: a run
    priority  smallint,
    queue     text collate "C",
    task      text collate "C",
    since     timestamptz not null default rota.clock()
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);

-- Finished jobs and runs whose successors are not released yet: another transaction had locked the successors' rows.
create table rota.pending_releases (
    job  bigint primary key,
    kind rota.outcome not null                          -- how it counts for its successors
);

-- Batches of jobs that workers hold. The id of the row is the fence.
create table rota.claims (
    id        bigint generated always as identity primary key,
    worker    bigint not null,
    nonce     uuid not null,                            -- generated by the client, to find the claim if its answer was
                                                        -- lost
    at        timestamptz not null default rota.clock(),
    expires   timestamptz,                              -- expires at this time, even if the worker is alive; null: with
                                                        -- the worker
    exclusive boolean,                                  -- of a running suspect: true if it runs alone on its worker
    jobs      bigint[] not null,                        -- ids of the jobs; the arrays below run parallel to it
    attempts  smallint[] not null,
    lost      smallint[] not null,
    seqs      bigint[] not null
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);
-- Compressing the arrays would cost more than the rest of a claim.
alter table rota.claims
    alter column jobs set storage external,
    alter column attempts set storage external,
    alter column lost set storage external,
    alter column seqs set storage external;

-- Outcomes of jobs and runs, one permanent row each.
create table rota.outcomes (
    job     bigint primary key,
    claim   bigint,                                     -- claim under which it was recorded; null: the job never ran,
                                                        -- or was lost
    worker  bigint,
    at      timestamptz not null default rota.clock(),
    seconds real,                                       -- duration of the last attempt
    state   rota.outcome not null,
    attempt smallint not null,
    result  json,
    error   json
);

-- Jobs that were lost with their workers too often to be retried.
create table rota.quarantine (
    job      bigint primary key,
    priority smallint not null,
    attempt  smallint not null,
    lost     smallint not null,
    queue    text collate "C" not null,
    task     text collate "C" not null,
    at       timestamptz not null default rota.clock(),     -- when it was quarantined
    error    json
);

-- Checkpoint of a job: where it continues after a retry or a return to the queue.
create table rota.checkpoints (
    job   bigint primary key,
    at    timestamptz not null default rota.clock(),
    state json not null
);

-- Attempts that were not the last one of their job.
create table rota.attempts (
    job     bigint not null,
    claim   bigint,
    worker  bigint,
    at      timestamptz not null default rota.clock(),
    seconds real,                                       -- duration
    state   rota.outcome not null,
    attempt smallint not null,
    result  json,
    error   json
);
create index attempts_job on rota.attempts (job, attempt);

-- Runs by idempotency key.
create table rota.keys (
    task       text collate "C" not null,
    key        text collate "C" not null,
    run        bigint not null,
    expires    timestamptz,                             -- null: never
    while_open boolean not null default false,          -- only until the run has finished
    primary key (task, key)
);

-- Requests to cancel a job that a worker holds or that is being moved. The next transaction that moves the job cancels
-- it.
create table rota.cancels (
    job bigint primary key,
    at  timestamptz not null default rota.clock()
);

-- Listeners for the outcome of a job.
create table rota.waiters (
    job      bigint not null,
    listener text not null,                             -- notification channel
    primary key (job, listener)
);

-- Public and stable: the state of every job.
create view rota.job_state as
select job.id as job,
       coalesce(job.run, job.id) as run,
       job.task,
       job.queue,
       coalesce(outcome.state::text,
                case when held.job is not null then 'running'
                     when sleeping.job is not null then 'sleeping'
                     when waiting.job is not null then 'waiting'
                     when quarantine.job is not null then 'quarantined'
                     else 'queued' end) as state,
       coalesce(outcome.attempt, held.attempt, sleeping.attempt, waiting.attempt, quarantine.attempt,
                (select max(attempts.attempt) + 1 from rota.attempts where attempts.job = job.id),
                1)::smallint as attempt,
       coalesce(outcome.worker, held.worker) as worker,
       coalesce(outcome.at, held.at, sleeping.since, waiting.since, quarantine.at,
                (select max(attempts.at) from rota.attempts where attempts.job = job.id),
                job.created) as since
  from rota.jobs as job
  left join rota.outcomes as outcome on outcome.job = job.id
  left join rota.sleeping on sleeping.job = job.id
  left join rota.waiting on waiting.job = job.id
  left join rota.quarantine on quarantine.job = job.id
  left join (select member.job, member.attempt, claims.worker, claims.at
               from rota.claims
              cross join lateral unnest(claims.jobs, claims.attempts) as member (job, attempt)) as held
         on held.job = job.id;

comment on view rota.job_state is
    'Where each job is: waiting, queued, sleeping, running, quarantined, succeeded, failed, cancelled, expired or '
    'skipped. '
    'Public and stable.';

-- Public and stable: the state of every run, of a flow or of a task started alone.
create view rota.run_state as
select state.run, state.task as name, false as is_flow, state.queue, state.state, state.attempt,
       job.created, state.since, job.key, null::bigint as parent
  from rota.jobs as job
  join rota.job_state as state on state.job = job.id
 where job.run is null
 union all
select run.id, coalesce(run.flow, ''), true, null,
       coalesce(outcome.state::text, 'running'), coalesce(outcome.attempt, waiting.attempt, 1::smallint),
       run.created, coalesce(outcome.at, run.created), run.key, run.parent
  from rota.runs as run
  left join rota.outcomes as outcome on outcome.job = run.id
  left join rota.waiting on waiting.job = run.id;

comment on view rota.run_state is
    'Every run: its flow''s or task''s name, and running, succeeded, failed or cancelled for a flow, '
    'the state of its job for a task. Public and stable.';

-- Reserve a key for a run. Returns the id of the run that has the key: the given one, or the one that reserved it
-- before.
create function rota.reserve_key(
    task text, key text, run bigint, unique_for interval, unique_open boolean
) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
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

-- Start one job from any language, in the caller's own transaction.
--
-- Returns the run, and whether this call created it: if the key is taken, the run is the one that has the key. If an
-- open transaction holds the key, the call fails with RT001 after two seconds instead of waiting. Every start of a
-- single job uses this function.
create function rota.start(
    task         text,
    args         json default '{}',
    queue        text default 'default',
    priority     integer default 0,
    key          text default null,
    unique_for   interval default null,
    unique_open  boolean default false,
    at           timestamptz default null,
    delay        interval default null,
    expires      timestamptz default null,
    expires_in   interval default null,
    options      json default null,
    notify       boolean default true,
    trace        text default null,
    out run      bigint,
    out created  boolean
)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
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
