-- breaking: no
-- Jobs, runs and workers: types, tables and the views of their state.
--
-- The state of a job is the table that holds its id. The row in `jobs` is written once. Exactly one of these tables
-- holds the job at any time:
--
--   queued      can be claimed now                                  claiming deletes the row
--   sleeping    waits for a time or a signal: delay, retry, sleep   waking moves it to `queued`
--   waiting     waits for other jobs of its run                     the last predecessor to finish moves it on
--   claims      held by a worker, many jobs per row                 the array `jobs` alone decides the holder
--   quarantine  its workers were lost too often                     an operator releases or cancels it
--   outcomes    finished, one permanent row per job                 the primary key prevents a second outcome
--
-- Each move between these tables is one statement or one short transaction, so every snapshot finds a job in exactly
-- one of them. The view `rota.job_state` returns the state as a word.
--
-- Names (task, queue, key) have the collation "C": they are compared byte by byte, independent of the database's
-- locale. This is faster, and the same on every server.
--
-- The order of columns in `jobs`, `queued`, `claims` and `runs` decides the size of a row and the cost of reading it.
-- Do not change it without a measurement.

comment on table rota.migrations is 'Migrations applied to this schema, one row each.';
comment on column rota.migrations.version is 'Number of the migration: the first four digits of its file name.';
comment on column rota.migrations.name is 'Name of the migration: its file name without the number.';
comment on column rota.migrations.breaking is
    'True if code without this migration cannot run on a schema that has it.';
comment on column rota.migrations.checksum is 'SHA-256 of the migration''s file when it was applied, in hexadecimal digits.';
comment on column rota.migrations.at is 'Time at which the migration was applied.';

create function rota.clock() returns timestamptz
language sql stable parallel safe
return statement_timestamp();
comment on function rota.clock is
    'Return the current time. Statements of Rota compare and set times by this clock only; tests replace it.';

create sequence rota.ids;
comment on sequence rota.ids is
    'Ids of jobs and runs, and positions in the queue. A job that is queued at creation has its own id as position. A '
    'job that returns to the queue gets the next number.';

-- Workers

create type rota.worker_state as enum ('active', 'draining', 'stopped', 'dead');
comment on type rota.worker_state is
    'State of a worker. active: claims jobs. draining: finishes its jobs and claims no more. stopped: shut down in '
    'order. dead: its heartbeat stopped and another worker declared it dead.';

-- Every heartbeat updates the row in place (HOT): no column that changes is indexed.
create table rota.workers (
    id              bigint generated always as identity primary key,
    host            text not null,
    pid             integer not null,
    version         text not null,
    engine          text not null default '',
    queues          text[] not null,
    tasks           text[] not null,
    schedules       text[] not null default '{}',
    capacity        integer not null,
    metadata        json not null default '{}',
    session_lock    integer,
    state           rota.worker_state not null default 'active',
    running         integer not null default 0,
    lag             real not null default 0,
    started         timestamptz not null default rota.clock(),
    last_beat       timestamptz not null default rota.clock(),
    beats           bigint not null default 0,
    drain_requested timestamptz,
    ended           timestamptz,
    charged_jobs    bigint[],
    doubtful_jobs   bigint[]
) with (fillfactor = 50);
comment on table rota.workers is 'Registered workers, including those that ended recently.';
comment on column rota.workers.id is 'Id of the worker.';
comment on column rota.workers.host is 'Name of the host that the worker runs on.';
comment on column rota.workers.pid is 'Process id of the worker.';
comment on column rota.workers.version is 'Version of the application, as configured by the user.';
comment on column rota.workers.engine is 'Version of Rota.';
comment on column rota.workers.queues is 'Queues that the worker claims from.';
comment on column rota.workers.tasks is 'Tasks that the worker can run.';
comment on column rota.workers.schedules is 'Schedules that the worker''s code declares.';
comment on column rota.workers.capacity is 'Number of job slots: jobs that the worker runs at once.';
comment on column rota.workers.metadata is 'JSON object set by the user.';
comment on column rota.workers.session_lock is 'Advisory lock that the heartbeat connection holds; null: none.';
comment on column rota.workers.state is 'State of the worker.';
comment on column rota.workers.running is 'Number of jobs running at the last heartbeat.';
comment on column rota.workers.lag is 'Delay of the worker''s event loop at the last heartbeat, in seconds.';
comment on column rota.workers.started is 'Time at which the worker was registered.';
comment on column rota.workers.last_beat is 'Time of the last heartbeat.';
comment on column rota.workers.beats is
    'Number of heartbeats. Observers compare this number instead of times: it rises even if the clock stops.';
comment on column rota.workers.drain_requested is 'Time at which an operator requested a drain; null: not requested.';
comment on column rota.workers.ended is 'Time at which the worker stopped or was declared dead.';
comment on column rota.workers.charged_jobs is
    'Jobs that the worker held when it died and that caused the death: its only job, or a suspect that ran alone.';
comment on column rota.workers.doubtful_jobs is
    'Jobs that the worker held when it died and that may have caused the death: suspects that ran alone at first.';

create table rota.worker_tasks (
    worker       bigint not null,
    task         text collate "C" not null,
    prefetchable boolean not null,
    primary key (worker, task)
);
comment on table rota.worker_tasks is 'Tasks of a worker that has too many to send with every claim.';
comment on column rota.worker_tasks.worker is 'Id of the worker.';
comment on column rota.worker_tasks.task is 'Name of the task.';
comment on column rota.worker_tasks.prefetchable is
    'True if the worker may claim a job of this task before a slot is free. The task has more than one attempt.';

-- Jobs and runs

create type rota.outcome as enum ('succeeded', 'failed', 'cancelled', 'expired', 'skipped');
comment on type rota.outcome is
    'Final state of a job, a run or an attempt. A skipped job with an error was skipped because of a failure or a '
    'cancellation; without an error, by its rule.';

create type rota.suspicion as enum ('mild', 'grave');
comment on type rota.suspicion is
    'Suspicion that a job crashes its workers. A grave suspect runs alone, until it has run for a while.';

create type rota.rule as enum ('all_succeeded', 'none_failed', 'all_done', 'any_failed');
comment on type rota.rule is
    'Condition on the outcomes of the predecessors under which a job runs. If it is not satisfied, the job is '
    'skipped.';

create table rota.jobs (
    id          bigint primary key default nextval('rota.ids'),
    run         bigint,
    created     timestamptz not null default rota.clock(),
    expires     timestamptz,
    priority    smallint not null default 0 check (priority between 0 and 9),
    task        text collate "C" not null,
    queue       text collate "C" not null,
    key         text collate "C",
    args        json not null,
    options     json,
    rule        rota.rule,
    successors  bigint[],
    inputs      json,
    forked_from bigint,
    trace       text
);
comment on table rota.jobs is 'Jobs, one row each, written once: the task, its arguments, queue, priority and policy.';
comment on column rota.jobs.id is 'Id of the job.';
comment on column rota.jobs.run is
    'Run that the job belongs to; null: the job was started alone, and its run has the same id.';
comment on column rota.jobs.created is 'Time at which the job was created.';
comment on column rota.jobs.expires is 'Time after which the job is not started any more; null: never.';
comment on column rota.jobs.priority is 'Priority from 0 to 9. Jobs of priority 9 are claimed first.';
comment on column rota.jobs.task is 'Name of the task.';
comment on column rota.jobs.queue is 'Name of the queue.';
comment on column rota.jobs.key is 'Idempotency key; null: none.';
comment on column rota.jobs.args is 'Arguments of the task by name, a JSON object.';
comment on column rota.jobs.options is 'Options set for this job by `options(…)`, beyond the policy of its task.';
comment on column rota.jobs.rule is 'Condition on the outcomes of the predecessors; null: the job was started alone.';
comment on column rota.jobs.successors is 'Jobs of the same run that depend on this job, or the run itself.';
comment on column rota.jobs.inputs is 'JSON object: name of an argument → id of the job whose result is its value.';
comment on column rota.jobs.forked_from is 'Run that this job was forked from; null: not forked.';
comment on column rota.jobs.trace is 'Position of the start in a trace, as a W3C traceparent.';

create table rota.runs (
    id          bigint primary key default nextval('rota.ids'),
    created     timestamptz not null default rota.clock(),
    flow        text collate "C",
    key         text collate "C",
    parent      bigint,
    number      integer,
    forked_from bigint,
    input       json not null,
    jobs        bigint[] not null,
    successors  bigint[]
);
comment on table rota.runs is
    'Runs of more than one job: of a flow, or of the calls that a job makes at once. A job started alone has no row '
    'here. A run waits and finishes as a job does: a row in `waiting`, then a row in `outcomes`.';
comment on column rota.runs.id is 'Id of the run.';
comment on column rota.runs.created is 'Time at which the run was started.';
comment on column rota.runs.flow is 'Name of the flow; null: the run consists of the calls of a job.';
comment on column rota.runs.key is 'Idempotency key; null: none.';
comment on column rota.runs.parent is 'Job that started this run; null: not started by a job.';
comment on column rota.runs.number is
    'Number of the call in the parent job; null: not started by a job, or detached because that job runs again.';
comment on column rota.runs.forked_from is 'Run that this run was forked from; null: not forked.';
comment on column rota.runs.input is 'Arguments of the flow by name, a JSON object.';
comment on column rota.runs.jobs is 'Ids of the jobs of this run.';
comment on column rota.runs.successors is 'Run that this run is a part of, as an array of one id; null: none.';
create unique index runs_parent on rota.runs (parent, number) where parent is not null;
-- Finds the latest runs of one flow.
create index runs_flow on rota.runs (flow, id) where flow is not null and parent is null;

create table rota.keys (
    task       text collate "C" not null,
    key        text collate "C" not null,
    run        bigint not null,
    expires    timestamptz,
    while_open boolean not null default false,
    primary key (task, key)
);
comment on table rota.keys is
    'Runs by idempotency key. A second start with the same task and key returns the run that has the key.';
comment on column rota.keys.task is 'Name of the task or flow.';
comment on column rota.keys.key is 'Idempotency key.';
comment on column rota.keys.run is 'Run that has the key.';
comment on column rota.keys.expires is 'Time at which the key becomes free; null: never.';
comment on column rota.keys.while_open is 'True if the key becomes free when its run has finished.';

-- Tables that hold a job, one for each state

create table rota.queued (
    seq       bigint not null,
    job       bigint not null,
    priority  smallint not null,
    attempt   smallint not null default 1,
    crashes   smallint not null default 0,
    queue     text collate "C" not null,
    task      text collate "C" not null,
    suspicion rota.suspicion
) with (
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.5
);
comment on table rota.queued is 'Jobs that can be claimed now, in order. Claiming deletes the row.';
comment on column rota.queued.seq is 'Position in the lane: the lowest number is claimed first.';
comment on column rota.queued.job is 'Id of the job.';
comment on column rota.queued.priority is 'Priority from 0 to 9. Jobs of priority 9 are claimed first.';
comment on column rota.queued.attempt is 'Number of the attempt that a claim begins, from 1.';
comment on column rota.queued.crashes is 'Number of workers that the job has crashed, as far as is known.';
comment on column rota.queued.queue is 'Name of the queue.';
comment on column rota.queued.task is 'Name of the task.';
comment on column rota.queued.suspicion is
    'Set for a suspect: a job that its worker held when it was lost. Each suspect is alone in its claim. mild: lost '
    'once; it runs like any other job. grave: lost again, or it crashed two workers; only jobs that have already run '
    'for a while may run beside it. Null: no suspect.';
create index queued_order on rota.queued (queue, priority, seq);
-- Finds suspects without reading the other jobs: each is claimed alone.
create index queued_suspects on rota.queued (priority desc, seq) where suspicion is not null;

create table rota.sleeping (
    job      bigint primary key,
    wake_at  timestamptz not null,
    priority smallint not null,
    attempt  smallint not null default 1,
    crashes  smallint not null default 0,
    queue    text collate "C" not null,
    task     text collate "C" not null,
    signals  text[],
    since    timestamptz not null default rota.clock()
);
comment on table rota.sleeping is 'Jobs that wait for a time or a signal: a delay, a retry, a sleep.';
comment on column rota.sleeping.job is 'Id of the job.';
comment on column rota.sleeping.wake_at is 'Time at which the job is queued.';
comment on column rota.sleeping.priority is 'Priority from 0 to 9.';
comment on column rota.sleeping.attempt is 'Number of the attempt that begins or continues after waking, from 1.';
comment on column rota.sleeping.crashes is 'Number of workers that the job has crashed.';
comment on column rota.sleeping.queue is 'Name of the queue.';
comment on column rota.sleeping.task is 'Name of the task.';
comment on column rota.sleeping.signals is
    'Names of signals. The first one sent wakes the job before `wake_at`; null: none.';
comment on column rota.sleeping.since is 'Time at which the job began to sleep.';
create index sleeping_wake_at on rota.sleeping (wake_at);

-- The counts change only under the row's lock, and rows are locked in the order of ids. If the last two predecessors
-- finish at the same time, the second transaction sees the count of the first.
create table rota.waiting (
    job       bigint primary key,
    open      integer not null check (open > 0),
    failed    integer not null default 0,
    cancelled integer not null default 0,
    skipped   integer not null default 0,
    attempt   smallint not null default 1,
    rule      rota.rule,
    priority  smallint,
    queue     text collate "C",
    task      text collate "C",
    since     timestamptz not null default rota.clock()
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);
comment on table rota.waiting is 'Jobs and runs that wait for their predecessors to finish.';
comment on column rota.waiting.job is 'Id of the job or run.';
comment on column rota.waiting.open is 'Number of predecessors that have not finished.';
comment on column rota.waiting.failed is 'Number of predecessors that failed, or were skipped because of a failure.';
comment on column rota.waiting.cancelled is 'Number of predecessors that were cancelled.';
comment on column rota.waiting.skipped is 'Number of predecessors that were skipped by their rule.';
comment on column rota.waiting.attempt is 'Number of the next attempt, from 1.';
comment on column rota.waiting.rule is 'Condition on the outcomes of the predecessors; null: the row is a run.';
comment on column rota.waiting.priority is 'Priority from 0 to 9; null: the row is a run.';
comment on column rota.waiting.queue is 'Name of the queue; null: the row is a run.';
comment on column rota.waiting.task is 'Name of the task; null: the row is a run.';
comment on column rota.waiting.since is 'Time at which the job or run began to wait.';

create table rota.claims (
    id        bigint generated always as identity primary key,
    worker    bigint not null,
    nonce     uuid not null,
    at        timestamptz not null default rota.clock(),
    expires   timestamptz,
    exclusive boolean,
    suspicion rota.suspicion,
    jobs      bigint[] not null,
    attempts  smallint[] not null,
    crashes   smallint[] not null,
    seqs      bigint[] not null
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);
comment on table rota.claims is 'Batches of jobs that workers hold, one row each. The id of the row is the fence.';
comment on column rota.claims.id is
    'Id of the claim. It only rises. An outcome under a claim that no longer holds the job is refused.';
comment on column rota.claims.worker is 'Id of the worker that holds the jobs.';
comment on column rota.claims.nonce is
    'Number generated by the client, to find the claim if the answer to its request was lost.';
comment on column rota.claims.at is 'Time of the claim.';
comment on column rota.claims.expires is
    'Time at which the claim expires, even if the worker is alive; null: it expires with the worker.';
comment on column rota.claims.exclusive is
    'For a running suspect, true if it runs alone on its worker; null: not a running suspect.';
comment on column rota.claims.suspicion is
    'Suspicion against the only job of the claim, as in `queued.suspicion`; null: no suspect.';
comment on column rota.claims.jobs is 'Ids of the jobs. The arrays `attempts`, `crashes` and `seqs` run parallel to it.';
comment on column rota.claims.attempts is 'Number of the attempt of each job.';
comment on column rota.claims.crashes is 'Number of workers that each job has crashed.';
comment on column rota.claims.seqs is 'Position that each job had in its lane. A job that is taken back returns to it.';
-- Compressing the arrays would cost more than the rest of a claim.
alter table rota.claims
    alter column jobs set storage external,
    alter column attempts set storage external,
    alter column crashes set storage external,
    alter column seqs set storage external;

create table rota.quarantine (
    job      bigint primary key,
    priority smallint not null,
    attempt  smallint not null,
    crashes  smallint not null,
    queue    text collate "C" not null,
    task     text collate "C" not null,
    at       timestamptz not null default rota.clock(),
    error    json
);
comment on table rota.quarantine is
    'Jobs that were lost with their workers too often to be retried. An operator releases or cancels them.';
comment on column rota.quarantine.job is 'Id of the job.';
comment on column rota.quarantine.priority is 'Priority from 0 to 9.';
comment on column rota.quarantine.attempt is 'Number of the attempt that begins after a release.';
comment on column rota.quarantine.crashes is 'Number of workers that the job has crashed.';
comment on column rota.quarantine.queue is 'Name of the queue.';
comment on column rota.quarantine.task is 'Name of the task.';
comment on column rota.quarantine.at is 'Time at which the job was quarantined.';
comment on column rota.quarantine.error is 'Error that describes the last loss, a JSON object.';

create table rota.outcomes (
    job     bigint primary key,
    claim   bigint,
    worker  bigint,
    at      timestamptz not null default rota.clock(),
    seconds real,
    state   rota.outcome not null,
    attempt smallint not null,
    result  json,
    error   json
);
comment on table rota.outcomes is 'Outcomes of jobs and runs, one permanent row each.';
comment on column rota.outcomes.job is 'Id of the job or run.';
comment on column rota.outcomes.claim is
    'Claim under which the outcome was recorded; null: the job never ran or was lost, or the row is a run.';
comment on column rota.outcomes.worker is 'Id of the worker that ran the last attempt.';
comment on column rota.outcomes.at is 'Time at which the outcome was recorded.';
comment on column rota.outcomes.seconds is 'Duration of the last attempt, in seconds.';
comment on column rota.outcomes.state is 'Final state.';
comment on column rota.outcomes.attempt is 'Number of the last attempt.';
comment on column rota.outcomes.result is 'Result of the task; null: none.';
comment on column rota.outcomes.error is 'Error of the last attempt, a JSON object; null: none.';
-- Finds the few unsuccessful outcomes among many.
create index outcomes_bad on rota.outcomes (state, job) where state in ('failed', 'cancelled', 'expired');

-- Tables beside the state of a job

create table rota.attempts (
    job     bigint not null,
    claim   bigint,
    worker  bigint,
    at      timestamptz not null default rota.clock(),
    seconds real,
    state   rota.outcome not null,
    attempt smallint not null,
    result  json,
    error   json
);
comment on table rota.attempts is 'Attempts that were not the last one of their job or run.';
comment on column rota.attempts.job is 'Id of the job or run.';
comment on column rota.attempts.claim is 'Claim under which the attempt ran; null: unknown, or the worker was lost.';
comment on column rota.attempts.worker is 'Id of the worker that ran the attempt.';
comment on column rota.attempts.at is 'Time at which the attempt ended.';
comment on column rota.attempts.seconds is 'Duration of the attempt, in seconds.';
comment on column rota.attempts.state is 'Outcome of the attempt.';
comment on column rota.attempts.attempt is 'Number of the attempt, from 1.';
comment on column rota.attempts.result is 'Result of the attempt; null: none.';
comment on column rota.attempts.error is 'Error of the attempt, a JSON object; null: none.';
create index attempts_job on rota.attempts (job, attempt);

create table rota.pending_releases (
    job  bigint primary key,
    kind rota.outcome not null
);
comment on table rota.pending_releases is
    'Finished jobs and runs whose successors are not released yet: another transaction had locked the rows of the '
    'successors.';
comment on column rota.pending_releases.job is 'Id of the finished job or run.';
comment on column rota.pending_releases.kind is 'Outcome that counts for the successors.';

create table rota.cancels (
    job bigint primary key,
    at  timestamptz not null default rota.clock()
);
comment on table rota.cancels is
    'Requests to cancel a job that a worker holds or that is being moved. The next transaction that moves the job '
    'cancels it.';
comment on column rota.cancels.job is 'Id of the job or run.';
comment on column rota.cancels.at is 'Time of the request.';

create table rota.waiters (
    job      bigint not null,
    listener text not null,
    primary key (job, listener)
);
comment on table rota.waiters is 'Listeners that wait for the outcome of a job or run.';
comment on column rota.waiters.job is 'Id of the job or run.';
comment on column rota.waiters.listener is 'Notification channel of the listener.';

-- Nearly always empty, and read once with every claim.
create table rota.pauses (
    queue    text collate "C" primary key,
    at       timestamptz not null default rota.clock(),
    operator text not null,
    reason   text not null default ''
);
comment on table rota.pauses is 'Paused queues: no job is claimed from them.';
comment on column rota.pauses.queue is 'Name of the queue.';
comment on column rota.pauses.at is 'Time at which the queue was paused.';
comment on column rota.pauses.operator is 'Operator that paused the queue.';
comment on column rota.pauses.reason is 'Reason that the operator gave; empty: none.';

-- Views

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
    'State of every job: waiting, queued, sleeping, running, quarantined, succeeded, failed, cancelled, expired or '
    'skipped. Public and stable.';
comment on column rota.job_state.job is 'Id of the job.';
comment on column rota.job_state.run is 'Run that the job belongs to.';
comment on column rota.job_state.task is 'Name of the task.';
comment on column rota.job_state.queue is 'Name of the queue.';
comment on column rota.job_state.state is 'State of the job, as a word.';
comment on column rota.job_state.attempt is 'Number of the current or last attempt.';
comment on column rota.job_state.worker is 'Id of the worker that holds the job or ran it last; null: none.';
comment on column rota.job_state.since is 'Time at which the job entered its state.';

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
    'State of every run, of a flow or of a task started alone. A run of a flow is running, succeeded, failed or '
    'cancelled; a run of a task has the state of its job. Public and stable.';
comment on column rota.run_state.run is 'Id of the run.';
comment on column rota.run_state.name is 'Name of the flow or task; empty: the calls of a job.';
comment on column rota.run_state.is_flow is 'True if the run has more than one job: a flow, or the calls of a job.';
comment on column rota.run_state.queue is 'Name of the queue; null: a flow.';
comment on column rota.run_state.state is 'State of the run, as a word.';
comment on column rota.run_state.attempt is 'Number of the current or last attempt.';
comment on column rota.run_state.created is 'Time at which the run was started.';
comment on column rota.run_state.since is 'Time at which the run entered its state.';
comment on column rota.run_state.key is 'Idempotency key; null: none.';
comment on column rota.run_state.parent is 'Job that started the run; null: not started by a job.';
