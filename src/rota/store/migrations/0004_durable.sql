-- breaking: yes
-- State of a job's own code: steps, signals, progress, logs.

create type rota.entry_kind as enum ('step', 'sleep', 'wait', 'value', 'version');

-- Journal of a job: steps, sleeps, waits, values and versions, in the order the code reached them. An entry is
-- inserted once; an open entry is updated when it has a result. The next attempt reads the result here instead of
-- running the step again.
create table rota.steps (
    job         bigint not null,
    kind        rota.entry_kind not null,
    name        text collate "C" not null,
    number      integer not null,                       -- number among the entries of this kind and name, from 1
    position    integer not null,                       -- order in which the code reached the entries
    main_branch boolean not null,                       -- true: in the job's main code, not in a concurrent branch
    branch_key  text collate "C" not null default '',   -- distinguishes entries of one name in a branch, where `number`
                                                        -- does not
    open        boolean not null default false,         -- true: has no result yet
    tries       smallint not null default 1,
    at          timestamptz not null default rota.clock(),
    seconds     real,                                   -- duration
    wake_at     timestamptz,                            -- when a sleep ends, a wait times out, a step is retried
    result      json,
    error       json,
    primary key (job, kind, name, number)
);

-- Signals of a run: one payload per name; the first one sent is kept. A row without a time is a signal that a job
-- waits for. Sender and waiting job lock the same row, so one of them always sees the other.
create table rota.signals (
    run     bigint not null,
    name    text collate "C" not null,
    at      timestamptz,                                -- null: not sent yet
    payload json,
    jobs    bigint[] not null default '{}',             -- jobs that have waited for it
    primary key (run, name)
);

-- Latest progress that a job's code has reported.
create table rota.progress (
    job   bigint primary key,
    claim bigint not null,                              -- claim under which it was reported; a lower id does not
                                                        -- overwrite it
    at    timestamptz not null default rota.clock(),
    done  float8 not null,
    total float8,                                       -- null: unknown
    note  text
) with (fillfactor = 50);

-- Log messages of a job's code.
create table rota.logs (
    job     bigint not null,
    at      timestamptz not null,
    attempt smallint not null,
    message text not null
);
create index logs_job on rota.logs (job, at);

-- Send a signal to a run, from any language. The id of a job is accepted for its run.
--
-- Returns 'sent'; 'known' if the run already has a signal of this name, which is kept; 'ended' if the run has
-- finished; null if there is no such run.
--
-- Lock order: the signal, then sleeping jobs by id.
create function rota.signal(run bigint, name text, payload json default 'null') returns text
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_mergejoin = off
set jit = off
set lock_timeout = '2s'
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

-- Run a task's job again from one of its steps on, in a new run. The entries before that step are copied. With `args`,
-- the new job has these arguments. Returns the new run and its queue; null if there is no such run, or no such step in
-- it.
create function rota.fork_job(
    run bigint, step text, args json, trace text default null, out forked bigint, out queue text)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_mergejoin = off
set jit = off
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
