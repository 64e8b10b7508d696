-- breaking: no
-- Schedules and their ticks.

create type rota.schedule_state as enum ('active', 'paused', 'disabled', 'ended');
comment on type rota.schedule_state is
    'State of a schedule. active: starts runs. paused: starts none until it is resumed. disabled: the code does not '
    'declare it any more. ended: it has no next tick.';

-- The transaction that starts the run of a tick advances `next` and `due`.
create table rota.schedules (
    name          text collate "C" primary key,
    declared      boolean not null,
    kind          text not null,
    target        text collate "C" not null,
    input         json not null,
    tenant        text collate "C",
    cron          text,
    tz            text not null default 'UTC',
    every         float8,
    at            timestamptz,
    overlap       text not null default 'skip',
    catch_up      text not null default 'latest',
    at_most       integer not null default 100,
    grace         float8,
    jitter        float8 not null default 0,
    starts        timestamptz,
    ends          timestamptz,
    max_runs      bigint,
    pause_after   integer,
    queue         text collate "C",
    state         rota.schedule_state not null default 'active',
    reason        text,
    paused_reason text,
    created       timestamptz not null default rota.clock(),
    anchor        timestamptz not null,
    next          timestamptz,
    due           timestamptz,
    queued        timestamptz,
    ticks         bigint not null default 0,
    runs          bigint not null default 0,
    missed        bigint not null default 0,
    last          timestamptz,
    run           bigint,
    failures      integer not null default 0,
    last_success  timestamptz,
    last_failure  timestamptz
) with (fillfactor = 70);
comment on table rota.schedules is 'Schedules: rules that start runs by the clock.';
comment on column rota.schedules.name is 'Name of the schedule.';
comment on column rota.schedules.declared is
    'True if the schedule is declared in code; otherwise it was created at run time.';
comment on column rota.schedules.kind is 'Kind of the target: task, flow or action.';
comment on column rota.schedules.target is 'Name of the task, flow or action.';
comment on column rota.schedules.input is 'Arguments by name, a JSON object.';
comment on column rota.schedules.tenant is 'Tenant that the schedule belongs to; null: none.';
comment on column rota.schedules.cron is 'Cron expression; null: the schedule has `every` or `at`.';
comment on column rota.schedules.tz is 'Time zone of the cron expression.';
comment on column rota.schedules.every is 'Seconds between ticks; null: the schedule has `cron` or `at`.';
comment on column rota.schedules.at is 'Time of the only tick; null: the schedule has `cron` or `every`.';
comment on column rota.schedules.overlap is
    'Policy if a previous run is still open: skip, queue_one, cancel_running or allow.';
comment on column rota.schedules.catch_up is 'Policy for missed ticks: none, latest or all.';
comment on column rota.schedules.at_most is 'Maximum number of runs that are started for missed ticks.';
comment on column rota.schedules.grace is
    'Seconds after which a tick is too late to be started; null: no limit of its own.';
comment on column rota.schedules.jitter is 'Maximum random delay of a tick, in seconds.';
comment on column rota.schedules.starts is 'Time before which there are no ticks; null: no limit.';
comment on column rota.schedules.ends is 'Time after which there are no ticks; null: no limit.';
comment on column rota.schedules.max_runs is 'Number of runs after which the schedule has ended; null: no limit.';
comment on column rota.schedules.pause_after is 'Number of consecutive failures that pause the schedule; null: never.';
comment on column rota.schedules.queue is 'Queue of the runs; null: the queue of the target.';
comment on column rota.schedules.state is 'State of the schedule.';
comment on column rota.schedules.reason is
    'Reason why the schedule is not active, or why its latest tick was postponed.';
comment on column rota.schedules.paused_reason is
    'Reason why the schedule was paused before it was disabled. It is restored when the schedule is declared again.';
comment on column rota.schedules.created is 'Time at which the schedule was created.';
comment on column rota.schedules.anchor is 'Time from which `every` is counted.';
comment on column rota.schedules.next is
    'Nominal time of the next tick, computed from the tick before; null: there is no next tick.';
comment on column rota.schedules.due is
    'Time at which a scheduler must process the schedule: at `next`, a little later with jitter, or soon if a tick '
    'waits for a run to end.';
comment on column rota.schedules.queued is 'Tick that waits for the previous run to end; null: none.';
comment on column rota.schedules.ticks is 'Number of ticks so far.';
comment on column rota.schedules.runs is 'Number of runs so far.';
comment on column rota.schedules.missed is 'Number of missed ticks so far.';
comment on column rota.schedules.last is 'Time of the latest tick.';
comment on column rota.schedules.run is 'Latest run.';
comment on column rota.schedules.failures is 'Number of consecutive failures.';
comment on column rota.schedules.last_success is 'Time of the latest success.';
comment on column rota.schedules.last_failure is 'Time of the latest failure.';
create index schedules_due on rota.schedules (due) where state = 'active';
create index schedules_postponed on rota.schedules (next) where state = 'active' and reason is not null;
create index schedules_declared on rota.schedules (target) where declared and state <> 'disabled';
create index schedules_ended on rota.schedules (coalesce(last, created)) where state = 'ended' and not declared;
-- Find the few failing schedules among many.
create index schedules_failing on rota.schedules (failures) where failures > 0;
create index schedules_stopped on rota.schedules (name) where state = 'paused' and failures > 0;

create table rota.ticks (
    schedule   text collate "C" not null,
    tick       timestamptz not null,
    number     bigint not null,
    state      text not null,
    reason     text,
    backfilled boolean not null default false,
    at         timestamptz not null default rota.clock(),
    host       text not null,
    pid        integer not null,
    run        bigint,
    outcome    rota.outcome,
    ended      timestamptz,
    primary key (schedule, tick)
);
comment on table rota.ticks is
    'Ticks, one row each: the decision, the process that made it, and the run it started. The latest thousand of each '
    'schedule are kept, and those whose run is still open.';
comment on column rota.ticks.schedule is 'Name of the schedule.';
comment on column rota.ticks.tick is 'Nominal time of the tick.';
comment on column rota.ticks.number is
    'Number within the schedule. A backfilled tick has the number of the latest one.';
comment on column rota.ticks.state is 'started, queued, skipped, missed or refused.';
comment on column rota.ticks.reason is 'Reason of the state, for example why the tick started no run; null: none.';
comment on column rota.ticks.backfilled is 'True if an operator started the tick for a time in the past.';
comment on column rota.ticks.at is 'Time at which the tick was handled.';
comment on column rota.ticks.host is 'Host of the process that handled the tick.';
comment on column rota.ticks.pid is 'Process id of the process that handled the tick.';
comment on column rota.ticks.run is 'Run that the tick started; null: none.';
comment on column rota.ticks.outcome is 'Outcome of the run; null: no run, or still open.';
comment on column rota.ticks.ended is 'Time at which the run ended; null: no run, or still open.';
create index ticks_open on rota.ticks (schedule) where run is not null and ended is null;
create index ticks_number on rota.ticks (schedule, number);
-- Finds the few missed and refused ticks among many.
create index ticks_lost on rota.ticks (at) where state in ('missed', 'refused');
