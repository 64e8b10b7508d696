-- breaking: no
-- Schedules and their ticks.

create type rota.schedule_state as enum ('active', 'paused', 'disabled', 'ended');

-- Schedules. `next` is the nominal time of the next tick; it is computed from the tick before. `due` is the time at
-- which a scheduler must process the schedule: at `next`, a little later if it has jitter, or soon if a tick waits for
-- a run to end. The transaction that starts the run of a tick advances both.
create table rota.schedules (
    name          text collate "C" primary key,
    declared      boolean not null,                     -- declared in code; otherwise created at run time
    kind          text not null,                        -- task, flow or action
    target        text collate "C" not null,            -- name of the task, flow or action
    input         json not null,
    tenant        text collate "C",
    cron          text,
    tz            text not null default 'UTC',
    every         float8,                               -- seconds between ticks
    at            timestamptz,                          -- time of the only tick
    overlap       text not null default 'skip',         -- policy if the previous run is still open
    catch_up      text not null default 'latest',       -- policy for missed ticks
    at_most       integer not null default 100,         -- maximum of runs that are made up for missed ticks
    grace         float8,                               -- seconds after which a tick is too late to be started
    jitter        float8 not null default 0,            -- maximum random delay, in seconds
    starts        timestamptz,
    ends          timestamptz,
    max_runs      bigint,
    pause_after   integer,                              -- consecutive failures that pause the schedule
    queue         text collate "C",
    state         rota.schedule_state not null default 'active',
    reason        text,                                 -- why it is not active, or why its latest tick was postponed
    paused_reason text,                                 -- why it was paused before it was disabled; restored when it is
                                                        -- declared again
    created       timestamptz not null default rota.clock(),
    anchor        timestamptz not null,                 -- time from which `every` is counted
    next          timestamptz,                          -- null: there is no next tick
    due           timestamptz,
    queued        timestamptz,                          -- tick that waits for the previous run to end
    ticks         bigint not null default 0,            -- number of ticks
    runs          bigint not null default 0,            -- number of runs
    missed        bigint not null default 0,            -- number of missed ticks
    last          timestamptz,                          -- latest tick
    run           bigint,                               -- latest run
    failures      integer not null default 0,           -- consecutive failures
    last_success  timestamptz,
    last_failure  timestamptz
) with (fillfactor = 70);
create index schedules_due on rota.schedules (due) where state = 'active';
create index schedules_postponed on rota.schedules (next) where state = 'active' and reason is not null;
create index schedules_declared on rota.schedules (target) where declared and state <> 'disabled';
create index schedules_ended on rota.schedules (coalesce(last, created)) where state = 'ended' and not declared;

-- Ticks, one row each: its state, the process that handled it, and the run it started. The latest thousand of each
-- schedule are kept, and those whose run is still open.
create table rota.ticks (
    schedule   text collate "C" not null,
    tick       timestamptz not null,
    number     bigint not null,                             -- number within the schedule; a backfilled tick has the
                                                            -- number of the latest one
    state      text not null,                               -- started, queued, skipped, missed or refused
    reason     text,
    backfilled boolean not null default false,
    at         timestamptz not null default rota.clock(),   -- when it was handled
    host       text not null,
    pid        integer not null,
    run        bigint,
    outcome    rota.outcome,                                -- outcome of the run
    ended      timestamptz,
    primary key (schedule, tick)
);
create index ticks_open on rota.ticks (schedule) where run is not null and ended is null;
create index ticks_number on rota.ticks (schedule, number);
