-- breaking: no
-- State of a job's own code: checkpoints, journal of steps, signals, progress, logs.

create table rota.checkpoints (
    job   bigint primary key,
    at    timestamptz not null default rota.clock(),
    state json not null
);
comment on table rota.checkpoints is
    'Checkpoints of jobs, one row each: the state from which a job continues after a retry or a return to the queue.';
comment on column rota.checkpoints.job is 'Id of the job.';
comment on column rota.checkpoints.at is 'Time at which the checkpoint was saved.';
comment on column rota.checkpoints.state is 'State that the job''s code has saved.';

-- Journal

create type rota.entry_kind as enum ('step', 'sleep', 'wait', 'value', 'version');
comment on type rota.entry_kind is
    'Kind of a journal entry. step: a call with a stored result. sleep: a pause. wait: a wait for a signal. value: a '
    'value that must be the same in every attempt, such as a time or a random number. version: a version of the code '
    'that the job has chosen.';

create table rota.steps (
    job         bigint not null,
    kind        rota.entry_kind not null,
    name        text collate "C" not null,
    number      integer not null,
    position    integer not null,
    main_branch boolean not null,
    branch_key  text collate "C" not null default '',
    open        boolean not null default false,
    tries       smallint not null default 1,
    at          timestamptz not null default rota.clock(),
    seconds     real,
    wake_at     timestamptz,
    result      json,
    error       json,
    primary key (job, kind, name, number)
);
comment on table rota.steps is
    'Journal of a job: steps, sleeps, waits, values and versions, in the order in which the code reached them. An '
    'entry is inserted once; an open entry is updated when it has a result. The next attempt reads the result here '
    'instead of running the step again.';
comment on column rota.steps.job is 'Id of the job.';
comment on column rota.steps.kind is 'Kind of the entry.';
comment on column rota.steps.name is 'Name of the step, signal, value or version.';
comment on column rota.steps.number is 'Number among the entries of this kind and name, from 1.';
comment on column rota.steps.position is
    'Number among all entries of the job, in the order in which the code reached them.';
comment on column rota.steps.main_branch is
    'True if the entry is in the main code of the job, not in a concurrent branch.';
comment on column rota.steps.branch_key is 'Count within the branch, such as 2.1.3; empty: equal to `number`.';
comment on column rota.steps.open is 'True if the entry has no result yet.';
comment on column rota.steps.tries is 'Number of tries so far.';
comment on column rota.steps.at is 'Time at which the entry was last written.';
comment on column rota.steps.seconds is 'Duration, in seconds.';
comment on column rota.steps.wake_at is
    'Time at which a sleep ends, a wait times out or a step is retried; null: none.';
comment on column rota.steps.result is 'Result; null: none.';
comment on column rota.steps.error is 'Error, a JSON object; null: none.';

-- Signals

-- Sender and waiting job lock the same row, so one of them always sees the other.
create table rota.signals (
    run     bigint not null,
    name    text collate "C" not null,
    at      timestamptz,
    payload json,
    jobs    bigint[] not null default '{}',
    primary key (run, name)
);
comment on table rota.signals is
    'Signals of runs: one payload per name; the first one sent is kept. A row without a time is a signal that a job '
    'waits for.';
comment on column rota.signals.run is 'Id of the run.';
comment on column rota.signals.name is 'Name of the signal.';
comment on column rota.signals.at is 'Time at which the signal was sent; null: not sent yet.';
comment on column rota.signals.payload is 'Payload of the signal.';
comment on column rota.signals.jobs is 'Jobs that have waited for the signal.';

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
        raise exception 'the name of a signal has 1 to 200 letters' using errcode = 'RT003';
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
    with woken as (
        delete from rota.sleeping
         where sleeping.job = any(waiting) and signal.name = any(sleeping.signals)
        returning sleeping.*
    ),
    enqueued as (
        insert into rota.queued (seq, job, priority, attempt, crashes, queue, task)
        select nextval('rota.ids'), woken.job, woken.priority, woken.attempt, woken.crashes, woken.queue, woken.task
          from (select woken.* from woken order by woken.job) as woken
        returning queued.queue
    )
    select array_agg(distinct enqueued.queue) into queues from enqueued;
    perform pg_notify('rota.wake', changed.queue) from unnest(queues) as changed (queue);
    return 'sent';
end
$$;
comment on function rota.signal is
    'Send a signal to a run, from any language. The id of a job is accepted for its run. Returns `sent`; `known` if '
    'the run already has a signal of this name, which is kept; `ended` if the run has finished; null if there is no '
    'such run. Raises RT003 for an invalid name. Public and stable.';

-- Fork

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
comment on function rota.fork_job is
    'Run a task''s job again from one of its steps on, in a new run. The entries before that step are copied. With '
    '`args`, the new job has these arguments. Returns the new run and its queue; null if there is no such run, or no '
    'such step in it.';

-- Progress and logs

create table rota.progress (
    job   bigint primary key,
    claim bigint not null,
    at    timestamptz not null default rota.clock(),
    done  float8 not null,
    total float8,
    note  text
) with (fillfactor = 50);
comment on table rota.progress is 'Latest progress that a job''s code has reported.';
comment on column rota.progress.job is 'Id of the job.';
comment on column rota.progress.claim is
    'Claim under which it was reported. A claim with a lower id does not overwrite it.';
comment on column rota.progress.at is 'Time of the report.';
comment on column rota.progress.done is 'Amount of work done, in units of the job''s code.';
comment on column rota.progress.total is 'Amount of work in all, in the same units; null: unknown.';
comment on column rota.progress.note is 'Text that describes the current work; null: none.';

create table rota.logs (
    job     bigint not null,
    at      timestamptz not null,
    attempt smallint not null,
    message text not null
);
comment on table rota.logs is 'Log messages of jobs.';
comment on column rota.logs.job is 'Id of the job.';
comment on column rota.logs.at is 'Time of the message.';
comment on column rota.logs.attempt is 'Number of the attempt that logged the message.';
comment on column rota.logs.message is 'Text of the message.';
create index logs_job on rota.logs (job, at);
