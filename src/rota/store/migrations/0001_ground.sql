-- breaking: yes
-- The ground floor: jobs, the places a job can be in, and the graphs that jobs form.
--
-- A state is a place. A job's row in `jobs` is written once; where the job *is* is told by the one
-- place that holds its id:
--
--   ready      may be claimed now                          (claiming deletes the row)
--   asleep     waits for a time or a signal: delay, retry, sleep   (waking moves it to ready)
--   waiting    waits for other jobs of its run             (the last of them moves it on)
--   claims     held by a worker, many to a row             (the array is the truth of who holds what)
--   quarantine has killed its workers too often            (somebody releases or cancels it)
--   outcomes   finished, one row a job, for good           (primary key: there is no second outcome)
--
-- Each move between places is one statement or one short transaction, so any snapshot finds a job in
-- exactly one of them. `rota.job_state` says it in words and stays as it is whatever the tables become.

-- The one clock. Statements compare and set times by it alone; tests put another in its place.
create function rota.clock() returns timestamptz
language sql stable parallel safe
return statement_timestamp();

-- Names (task, queue, key) are compared byte by byte, whatever the database's locale: faster, and the same
-- everywhere.

-- Ids of jobs, and places in the queue: a job that is ready from the start queues under its own id,
-- one that comes back takes the next number.
create sequence rota.ids;

create type rota.worker_state as enum ('active', 'draining', 'stopped', 'dead');

-- Who works, or did lately. The row is updated with every beat, in place: nothing that changes is indexed.
create table rota.workers (
    id       bigint generated always as identity primary key,
    host     text not null,
    pid      integer not null,
    version  text not null,                             -- what its owner calls the code it runs
    engine   text not null default '',                  -- the version of Rota
    queues   text[] not null,
    tasks    text[] not null,
    schedules text[] not null default '{}',             -- that its code declares
    capacity integer not null,
    metadata json not null default '{}',
    session_lock     integer,                                   -- the advisory lock its beat's connection holds, if any
    state    rota.worker_state not null default 'active',
    running  integer not null default 0,                -- as of the last beat
    lag      real not null default 0,                   -- … by how many seconds its event loop was late
    started  timestamptz not null default rota.clock(),
    last_beat     timestamptz not null default rota.clock(),
    beats    bigint not null default 0,                 -- what others watch: it moves even if the clock stands
    drain_requested    timestamptz,                               -- somebody wants it to drain
    ended    timestamptz,                               -- when it left or was declared dead
    charged_jobs   bigint[],                                  -- of what it held when it died, what killed it
    doubtful_jobs  bigint[]                                   -- … or may have
) with (fillfactor = 50);

-- What a worker knows that knows too much to say it with every claim.
create table rota.worker_tasks (
    worker  bigint not null,
    task    text collate "C" not null,
    prefetchable boolean not null,                           -- tried more than once, so it may be held ahead
    primary key (worker, task)
);

-- A skipped job with an error was skipped because of it; one without, on purpose.
create type rota.outcome as enum ('succeeded', 'failed', 'cancelled', 'expired', 'skipped');

-- What the jobs a job waits for must have come to for it to run; else it is skipped.
create type rota.rule as enum ('all_succeeded', 'none_failed', 'all_done', 'any_failed');

create table rota.jobs (
    id       bigint primary key default nextval('rota.ids'),
    run      bigint,                                    -- null: started alone, its run is itself
    created  timestamptz not null default rota.clock(),
    expires  timestamptz,
    priority     smallint not null default 0 check (priority between 0 and 9),
    task     text collate "C" not null,
    queue    text collate "C" not null,
    key      text collate "C",
    args     json not null,
    options  json,                                      -- what `using(…)` said beyond the task's own policy
    rule     rota.rule,
    successors bigint[],                                  -- who waits for it: jobs of its run, or the run itself
    inputs   json,                                      -- argument → the job whose result it is
    forked_from   bigint,                                    -- the run this one was forked from
    trace    text                                       -- where its start was in a trace, as a W3C traceparent
);

-- Runs of more than one job: of a flow, or of the calls a job has made. A job started alone has none.
-- Such a run waits and ends as a job does: a row in `waiting`, then one in `outcomes`.
create table rota.runs (
    id       bigint primary key default nextval('rota.ids'),
    created  timestamptz not null default rota.clock(),
    flow     text collate "C",                          -- null: calls of a job
    key      text collate "C",
    parent   bigint,                                    -- the job that made the calls
    number   integer,                                   -- … which of its calls these are
    forked_from   bigint,                                    -- the run this one was forked from
    input    json not null,
    jobs     bigint[] not null,
    successors bigint[]                                   -- the run it is one call of
);
create unique index runs_parent on rota.runs (parent, number) where parent is not null;

-- `lost`, here and wherever a job goes: how many workers died of it, as far as one can tell. Below 0 it was lost
-- just now and is a suspect, in a claim of its own and judged before it runs: -1, lost in company; -2, lost in
-- company once more; -n - 2, n workers died of it. One that was lost once (-1, -3) runs like any other; the rest are
-- grave, and run with nothing beside them that has not run for a while.
create table rota.queued (
    seq     bigint not null,
    job     bigint not null,
    priority    smallint not null,
    attempt smallint not null default 1,
    lost    smallint not null default 0,
    queue   text collate "C" not null,
    task    text collate "C" not null
) with (
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.5
);
create index queued_order on rota.queued (queue, priority, seq);
-- Suspects are claimed one by one, whatever their number.
create index queued_suspects on rota.queued (priority desc, seq) where lost < 0;

create table rota.sleeping (
    job     bigint primary key,
    wake_at    timestamptz not null,
    priority    smallint not null,
    attempt smallint not null default 1,
    lost    smallint not null default 0,
    queue   text collate "C" not null,
    task    text collate "C" not null,
    signals text[],                                     -- … or for one of these, whichever comes first
    since   timestamptz not null default rota.clock()
);
create index sleeping_wake_at on rota.sleeping (wake_at);

-- Jobs and runs that wait for others to end. The counts are changed under the row's lock, rows are
-- locked in the order of their ids: of two last parents that end together, the second one sees the first.
create table rota.waiting (
    job       bigint primary key,
    open      integer not null check (open > 0),        -- parents that have not ended
    failed    integer not null default 0,               -- … that failed, or were skipped because of a failure
    cancelled integer not null default 0,
    skipped   integer not null default 0,
    attempt   smallint not null default 1,
    rule      rota.rule,                                -- null: a run
    priority      smallint,
    queue     text collate "C",
    task      text collate "C",
    since     timestamptz not null default rota.clock()
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);

-- Ends that are recorded but still have to be passed on: the rows of those who wait were busy.
create table rota.pending_releases (
    job  bigint primary key,
    kind rota.outcome not null
);

create table rota.claims (
    id       bigint generated always as identity primary key,
    worker   bigint not null,
    nonce    uuid not null,                             -- the client made it: a lost answer can be found again
    at       timestamptz not null default rota.clock(),
    expires    timestamptz,                               -- it runs out then, whatever becomes of the worker
    exclusive    boolean,                                   -- of a suspect that runs: whether it does so alone
    jobs     bigint[] not null,
    attempts smallint[] not null,
    lost     smallint[] not null,
    seqs     bigint[] not null
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);
-- Compressing the arrays would cost more than all the rest of a claim.
alter table rota.claims
    alter column jobs set storage external,
    alter column attempts set storage external,
    alter column lost set storage external,
    alter column seqs set storage external;

create table rota.outcomes (
    job     bigint primary key,
    claim   bigint,                                     -- under which it was recorded; null: it never ran, or was lost
    worker  bigint,
    at      timestamptz not null default rota.clock(),
    seconds    real,
    state   rota.outcome not null,
    attempt smallint not null,
    result  json,
    error   json
);

-- Jobs that were lost with their workers too often to be tried once more.
create table rota.quarantine (
    job     bigint primary key,
    priority    smallint not null,
    attempt smallint not null,
    lost    smallint not null,
    queue   text collate "C" not null,
    task    text collate "C" not null,
    at      timestamptz not null default rota.clock(),
    error   json
);

-- How far a job has come, by its own account: where it goes on if it is tried or given back.
create table rota.checkpoints (
    job   bigint primary key,
    at    timestamptz not null default rota.clock(),
    state json not null
);

-- Attempts that were not the last one.
create table rota.attempts (
    job     bigint not null,
    claim   bigint,
    worker  bigint,
    at      timestamptz not null default rota.clock(),
    seconds    real,
    state   rota.outcome not null,
    attempt smallint not null,
    result  json,
    error   json
);
create index attempts_job on rota.attempts (job, attempt);

create table rota.keys (
    task       text collate "C" not null,
    key        text collate "C" not null,
    run        bigint not null,
    expires      timestamptz,                             -- null: for good
    while_open boolean not null default false,          -- only until the run has finished
    primary key (task, key)
);

-- Wishes to cancel what a worker holds; whoever moves the job next obeys.
create table rota.cancels (
    job bigint primary key,
    at  timestamptz not null default rota.clock()
);

-- Who wants to be told when a job has an outcome: a channel to notify.
create table rota.waiters (
    job      bigint not null,
    listener text not null,
    primary key (job, listener)
);

-- Public and stable: where every job is, in words.
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
    'Where each job is: waiting, ready, asleep, running, quarantined, succeeded, failed, cancelled, expired or '
    'skipped. '
    'Public and stable.';

-- Public and stable: every run, of a flow or of a task started alone, in words.
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

-- Take a key for a run, or find out which run has it: answers that run's id.
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
        -- A new statement: the insert's own snapshot may be older than the row it met.
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
-- Answers the run and whether this call created it: with a key that is taken, it is the run that
-- took it. A key that somebody's open transaction holds is refused with RT001 after two seconds
-- rather than waited for. Every way of starting a single job goes through here.
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
