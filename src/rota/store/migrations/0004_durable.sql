-- breaking: yes
-- What a job's own code has come to, and what it waits for: steps, signals, progress, logs.

create type rota.entry_kind as enum ('step', 'sleep', 'wait', 'value', 'version');

-- Written once, when the code has come to it; one that is open is written once more when it has come to something.
-- Whoever runs the job next is given what is here instead of doing it again.
create table rota.steps (
    job      bigint not null,
    kind     rota.entry_kind not null,
    name     text collate "C" not null,
    number   integer not null,                          -- of those of this name, from 1
    position integer not null,                          -- in the order in which the code came to them
    main_branch      boolean not null,                          -- in the job's own line, not in a branch beside it
    branch_key    text collate "C" not null default '',      -- which of its name there, if that is not its number
    open     boolean not null default false,            -- it has come to nothing yet
    tries    smallint not null default 1,
    at       timestamptz not null default rota.clock(),
    seconds     real,
    wake_at    timestamptz,                               -- when a sleep ends, a wait is over, a step is tried again
    result   json,
    error    json,
    primary key (job, kind, name, number)
);

-- What was said to a run: one value for a name, the first, for good. A row without a time is one that somebody
-- waits for; it is the row that who waits and who sends both lock, so that one of them sees the other.
create table rota.signals (
    run     bigint not null,
    name    text collate "C" not null,
    at      timestamptz,                                -- null: not sent yet
    payload json,
    jobs    bigint[] not null default '{}',             -- who has waited for it
    primary key (run, name)
);

-- How far a job is, in its own words: the last of them.
create table rota.progress (
    job   bigint primary key,
    claim bigint not null,                              -- under which it was said: they only grow
    at    timestamptz not null default rota.clock(),
    done  float8 not null,
    total float8,
    note  text
) with (fillfactor = 50);

-- What a job's code had to say.
create table rota.logs (
    job     bigint not null,
    at      timestamptz not null,
    attempt smallint not null,
    message text not null
);
create index logs_job on rota.logs (job, at);

-- Say something to a run, from any language. Answers 'sent'; 'known': there was such a signal already, which stands;
-- 'ended': the run has; null: there is no such run. The id of a job stands for its run.
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

    -- Who waits for it has locked the signal before it lay down: here it is asleep, or will see what was sent.
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

-- Run a task's job once more from one of its steps on, in a run of its own: what it came to before that is copied.
-- With `args`, as if it had been started with these. Answers the new run and its queue; null: there is no such run, or
-- no such step in it.
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
    -- Kept until the copy is made: who removes old runs passes by.
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
    insert into rota.steps (job, kind, name, number, position, main_branch, branch_key, open, tries, at, seconds, wake_at, result, error)
    select forked, steps.kind, steps.name, steps.number, steps.position, steps.main_branch, steps.branch_key, steps.open,
           steps.tries, steps.at, steps.seconds, steps.wake_at, steps.result, steps.error
      from rota.steps
     where steps.job = fork_job.run
       and steps.position < first;
    -- What was said to the run and heard by then is known to the new one, too.
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
