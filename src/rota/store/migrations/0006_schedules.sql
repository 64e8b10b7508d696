-- breaking: no
-- What starts runs by the clock.

create type rota.schedule_state as enum ('active', 'paused', 'disabled', 'ended');

-- `next` is the nominal time of the next tick, and follows from the one before; `due` is when somebody has to look: then,
-- or a little later if it jitters, or soon if something waits for a run to end. Whoever starts the run of a tick moves
-- both on in the same transaction.
create table rota.schedules (
    name        text collate "C" primary key,
    declared    boolean not null,                       -- in code; else made at run time
    kind        text not null,                          -- task, flow or action
    target      text collate "C" not null,              -- its name
    input       json not null,
    tenant      text collate "C",
    cron        text,
    tz          text not null default 'UTC',
    every       float8,
    at          timestamptz,
    overlap     text not null default 'skip',
    catch_up    text not null default 'latest',
    at_most     integer not null default 100,           -- runs to catch up with, at most
    grace       float8,                                 -- seconds after which a tick is too late to be started
    jitter      float8 not null default 0,
    starts      timestamptz,
    ends        timestamptz,
    max_runs    bigint,
    pause_after integer,                                -- failures in a row
    queue       text collate "C",
    state       rota.schedule_state not null default 'active',
    reason         text,                                   -- … it is not active, or what was in its way the last time
    paused_reason        text,                                   -- why it was paused when it was disabled: it will be again
    created     timestamptz not null default rota.clock(),
    anchor      timestamptz not null,                   -- from when on `every` is counted
    next        timestamptz,                            -- null: there is none
    due         timestamptz,
    queued      timestamptz,                            -- a tick that waits for the run before it to end
    ticks       bigint not null default 0,              -- so many there were
    runs        bigint not null default 0,              -- … and so many runs
    missed      bigint not null default 0,              -- … and so many that nobody was there for
    last        timestamptz,                            -- the last tick
    run         bigint,                                 -- the last run
    failures    integer not null default 0,             -- in a row
    last_success   timestamptz,
    last_failure      timestamptz
) with (fillfactor = 70);
create index schedules_due on rota.schedules (due) where state = 'active';
create index schedules_postponed on rota.schedules (next) where state = 'active' and reason is not null;
create index schedules_declared on rota.schedules (target) where declared and state <> 'disabled';
create index schedules_ended on rota.schedules (coalesce(last, created)) where state = 'ended' and not declared;

-- Each tick there was, once: what became of it, who saw to it, and the run it started. The last thousand of each
-- schedule are kept, and those whose run has not ended.
create table rota.ticks (
    schedule   text collate "C" not null,
    tick       timestamptz not null,
    number     bigint not null,                         -- of its schedule; what is backfilled has that of the last one
    state      text not null,                           -- started, queued, skipped, missed, refused
    reason        text,
    backfilled boolean not null default false,
    at         timestamptz not null default rota.clock(),
    host       text not null,
    pid        integer not null,
    run        bigint,
    outcome    rota.outcome,
    ended      timestamptz,
    primary key (schedule, tick)
);
create index ticks_open on rota.ticks (schedule) where run is not null and ended is null;
create index ticks_number on rota.ticks (schedule, number);
