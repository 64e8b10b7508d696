-- Schema of Rota: the result of all migrations, for reading. `make schema` generates it.
-- Do not edit it. Databases are created from the files in `migrations/`.

create sequence rota.ids as bigint start 1 increment 1 minvalue 1 maxvalue 9223372036854775807 cache 1;
comment on sequence rota.ids is
    'Ids of jobs and runs, and positions in the queue. A job that is queued at creation has its own id as position. A '
    'job that returns to the queue gets the next number.';

create sequence rota.tokens as bigint start 1 increment 1 minvalue 1 maxvalue 9223372036854775807 cache 1;
comment on sequence rota.tokens is
    'Fencing tokens of locks and of calls made once. Each token is larger than all before it, for every kind of '
    'lease.';

create type rota.entry_kind as enum ('step', 'sleep', 'wait', 'value', 'version');
comment on type rota.entry_kind is
    'Kind of a journal entry. step: a call with a stored result. sleep: a pause. wait: a wait for a signal. value: a '
    'value that must be the same in every attempt, such as a time or a random number. version: a version of the code '
    'that the job has chosen.';

create type rota.outcome as enum ('succeeded', 'failed', 'cancelled', 'expired', 'skipped');
comment on type rota.outcome is
    'Final state of a job, a run or an attempt. A skipped job with an error was skipped because of a failure or a '
    'cancellation; without an error, by its rule.';

create type rota.rule as enum ('all_succeeded', 'none_failed', 'all_done', 'any_failed');
comment on type rota.rule is
    'Condition on the outcomes of the predecessors under which a job runs. If it is not satisfied, the job is '
    'skipped.';

create type rota.schedule_state as enum ('active', 'paused', 'disabled', 'ended');
comment on type rota.schedule_state is
    'State of a schedule. active: starts runs. paused: starts none until it is resumed. disabled: the code does not '
    'declare it any more. ended: it has no next tick.';

create type rota.suspicion as enum ('mild', 'grave');
comment on type rota.suspicion is
    'Suspicion that a job crashes its workers. A grave suspect runs alone, until it has run for a while.';

create type rota.worker_state as enum ('active', 'draining', 'stopped', 'dead');
comment on type rota.worker_state is
    'State of a worker. active: claims jobs. draining: finishes its jobs and claims no more. stopped: shut down in '
    'order. dead: its heartbeat stopped and another worker declared it dead.';

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
comment on table rota.access_tokens is
    'Tokens for HTTP access. Only a digest and an id that is not secret are stored, so reading the table gives no '
    'access.';
comment on column rota.access_tokens.id is 'Id of the token. It is a part of the token and not secret.';
comment on column rota.access_tokens.name is 'Name of the token for operators.';
comment on column rota.access_tokens.role is 'Role: viewer, operator or admin.';
comment on column rota.access_tokens.digest is 'SHA-256 digest of the token.';
comment on column rota.access_tokens.created_by is 'Operator that created the token.';
comment on column rota.access_tokens.created is 'Time at which the token was created.';
comment on column rota.access_tokens.expires is 'Time at which the token expires; null: never.';
comment on column rota.access_tokens.revoked is 'Time at which the token was revoked; null: not revoked.';
comment on column rota.access_tokens.last_used is
    'Time of the latest use, recorded at most once a minute; null: never used.';

create table rota.alert_rounds (
    name text collate "C" not null,
    number bigint not null,
    at timestamp with time zone not null,
    state json,
    constraint alert_rounds_pkey PRIMARY KEY (name)
);
comment on table rota.alert_rounds is 'Rounds of periodic checks that one instance makes for all instances.';
comment on column rota.alert_rounds.name is 'Name of the check.';
comment on column rota.alert_rounds.number is 'Number of the latest round.';
comment on column rota.alert_rounds.at is 'Time at which the latest round began.';
comment on column rota.alert_rounds.state is 'State that the latest round has stored for the next one, a JSON value.';

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
comment on table rota.alerts is
    'Alerts with the state of their delivery. At most one that is not cleared exists per kind and subject.';
comment on column rota.alerts.id is 'Id of the alert.';
comment on column rota.alerts.kind is 'Kind of the alert, such as `worker dead`.';
comment on column rota.alerts.subject is 'Object of the alert, such as a host, a queue or a lock.';
comment on column rota.alerts.message is 'Message for operators.';
comment on column rota.alerts.token is 'Token of the lease that the alert is about; null: not about a lease.';
comment on column rota.alerts.raised is 'Time at which the alert was raised.';
comment on column rota.alerts.cleared is 'Time at which the alert was closed; null: open.';
comment on column rota.alerts.host is 'Host of the process that raised the alert.';
comment on column rota.alerts.pid is 'Process id of the process that raised the alert.';
comment on column rota.alerts.calm_since is
    'Time from which the condition of the alert no longer holds, while it may recur; null: it holds.';
comment on column rota.alerts.acknowledged is 'Time of the acknowledgement; null: not acknowledged.';
comment on column rota.alerts.acknowledged_until is 'Time at which the acknowledgement ends.';
comment on column rota.alerts.acknowledged_by is 'Operator that acknowledged the alert.';
comment on column rota.alerts.closed_by is
    'Operator that closed the alert; null: open, or closed because the condition no longer holds.';
comment on column rota.alerts.delivered_to is
    'Deliveries made so far: `raised` or `cleared`, a space and the name of the receiver.';
comment on column rota.alerts.delivery_attempts is 'Number of attempts at the next delivery.';
comment on column rota.alerts.deliver_at is 'Time of the next delivery attempt; null: nothing to deliver.';

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
comment on table rota.audit is 'Actions of operators, one row each.';
comment on column rota.audit.id is 'Id of the row.';
comment on column rota.audit.at is 'Time of the action.';
comment on column rota.audit.operator is 'Name of the operator.';
comment on column rota.audit.action is 'Action, such as `release lock`.';
comment on column rota.audit.subject is 'Object of the action, such as the name of a lock or the id of a run.';
comment on column rota.audit.detail is 'Further facts, a JSON object.';

create table rota.cancels (
    job bigint not null,
    at timestamp with time zone not null default rota.clock(),
    constraint cancels_pkey PRIMARY KEY (job)
);
comment on table rota.cancels is
    'Requests to cancel a job that a worker holds or that is being moved. The next transaction that moves the job '
    'cancels it.';
comment on column rota.cancels.job is 'Id of the job or run.';
comment on column rota.cancels.at is 'Time of the request.';

create table rota.checkpoints (
    job bigint not null,
    at timestamp with time zone not null default rota.clock(),
    state json not null,
    constraint checkpoints_pkey PRIMARY KEY (job)
);
comment on table rota.checkpoints is
    'Checkpoints of jobs, one row each: the state from which a job continues after a retry or a return to the queue.';
comment on column rota.checkpoints.job is 'Id of the job.';
comment on column rota.checkpoints.at is 'Time at which the checkpoint was saved.';
comment on column rota.checkpoints.state is 'State that the job''s code has saved.';

create table rota.claims (
    id bigint not null generated always as identity,
    worker bigint not null,
    nonce uuid not null,
    at timestamp with time zone not null default rota.clock(),
    expires timestamp with time zone,
    exclusive boolean,
    suspicion rota.suspicion,
    jobs bigint[] not null storage external,
    attempts smallint[] not null storage external,
    crashes smallint[] not null storage external,
    seqs bigint[] not null storage external,
    constraint claims_pkey PRIMARY KEY (id)
) with (fillfactor=50, autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=500, autovacuum_vacuum_cost_delay=0);
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
comment on column rota.claims.jobs is
    'Ids of the jobs. The arrays `attempts`, `crashes` and `seqs` run parallel to it.';
comment on column rota.claims.attempts is 'Number of the attempt of each job.';
comment on column rota.claims.crashes is 'Number of workers that each job has crashed.';
comment on column rota.claims.seqs is 'Position that each job had in its lane. A job that is taken back returns to it.';

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
comment on table rota.instances is 'Instances that run services, or can take them over.';
comment on column rota.instances.id is 'Id of the instance.';
comment on column rota.instances.host is 'Host of the instance.';
comment on column rota.instances.pid is 'Process id of the instance.';
comment on column rota.instances.label is 'Name of the instance for operators.';
comment on column rota.instances.version is 'Version of the application, as configured by the user.';
comment on column rota.instances.started is 'Time at which the instance was started.';
comment on column rota.instances.last_seen is 'Time of the last heartbeat.';
comment on column rota.instances.expires is 'Time at which the instance counts as lost without a further heartbeat.';
comment on column rota.instances.services is 'Services that the instance can run.';
comment on column rota.instances.running is 'Services that the instance runs.';

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
comment on table rota.iterations is 'Iterations of services, the latest thousand of each.';
comment on column rota.iterations.service is 'Name of the service.';
comment on column rota.iterations.number is 'Number of the iteration, from 1.';
comment on column rota.iterations.term is 'Term of the service''s leader under which it ran.';
comment on column rota.iterations.instance is 'Instance that ran it.';
comment on column rota.iterations.host is 'Host of the instance.';
comment on column rota.iterations.pid is 'Process id of the instance.';
comment on column rota.iterations.started is 'Time at which the iteration started.';
comment on column rota.iterations.ended is 'Time at which the iteration ended, or was marked as lost; null: open.';
comment on column rota.iterations.outcome is 'succeeded, failed, stopped or lost; null: open.';
comment on column rota.iterations.error is 'Error, a JSON object; null: none.';

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

create table rota.keys (
    task text collate "C" not null,
    key text collate "C" not null,
    run bigint not null,
    expires timestamp with time zone,
    while_open boolean not null default false,
    constraint keys_pkey PRIMARY KEY (task, key)
);
comment on table rota.keys is
    'Runs by idempotency key. A second start with the same task and key returns the run that has the key.';
comment on column rota.keys.task is 'Name of the task or flow.';
comment on column rota.keys.key is 'Idempotency key.';
comment on column rota.keys.run is 'Run that has the key.';
comment on column rota.keys.expires is 'Time at which the key becomes free; null: never.';
comment on column rota.keys.while_open is 'True if the key becomes free when its run has finished.';

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
comment on table rota.leaders is
    'Leaders and their terms. If `expires` is null, an advisory lock of a database session holds the term; the term '
    'ends with the session.';
comment on column rota.leaders.name is 'Name of the leadership.';
comment on column rota.leaders.term is 'Number of the term. It rises by one with every election.';
comment on column rota.leaders.instance is 'Instance that leads; null: vacant.';
comment on column rota.leaders.host is 'Host of the leader.';
comment on column rota.leaders.pid is 'Process id of the leader.';
comment on column rota.leaders.label is 'Name of the leader for operators.';
comment on column rota.leaders.since is 'Time at which the term began.';
comment on column rota.leaders.expires is
    'Time at which the lease of the term expires unless it is renewed; null: a session holds the term.';
comment on column rota.leaders.session_lock is 'Second key of the advisory lock.';
comment on column rota.leaders.elections is 'Times of the latest elections.';

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
comment on table rota.locks is
    'Leases on names. A lock is slot 0 of its name; the permits of a semaphore are the slots from 1. Rows are kept: a '
    'free one has no instance.';
comment on column rota.locks.name is 'Name of the lock or semaphore.';
comment on column rota.locks.slot is '0 for a lock; from 1 for the permits of a semaphore.';
comment on column rota.locks.token is 'Fencing token, replaced with every acquisition.';
comment on column rota.locks.instance is 'Instance that holds the lease; null: free.';
comment on column rota.locks.nonce is
    'Number of the call that acquired the lease. The call recognizes its own lease by it if it has to resend its '
    'request.';
comment on column rota.locks.host is 'Host of the holder.';
comment on column rota.locks.pid is 'Process id of the holder.';
comment on column rota.locks.label is 'Name of the holder for operators.';
comment on column rota.locks.acquired is 'Time of the acquisition.';
comment on column rota.locks.expires is 'Time at which the lease expires unless it is renewed.';
comment on column rota.locks.renewals is 'Number of renewals since the acquisition.';
comment on column rota.locks.max_held is 'Seconds after which an alert is raised; null: never.';
comment on column rota.locks.awaited_since is
    'Time at which a waiting client requested a notification of the release; null: no client waits.';

create table rota.logs (
    job bigint not null,
    at timestamp with time zone not null,
    attempt smallint not null,
    message text not null
);
CREATE INDEX logs_job ON rota.logs USING btree (job, at);
comment on table rota.logs is 'Log messages of jobs.';
comment on column rota.logs.job is 'Id of the job.';
comment on column rota.logs.at is 'Time of the message.';
comment on column rota.logs.attempt is 'Number of the attempt that logged the message.';
comment on column rota.logs.message is 'Text of the message.';

create table rota.migrations (
    version integer not null,
    name text not null,
    breaking boolean not null,
    checksum text not null,
    at timestamp with time zone not null default now(),
    constraint migrations_pkey PRIMARY KEY (version)
);
comment on table rota.migrations is 'Migrations applied to this schema, one row each.';
comment on column rota.migrations.version is 'Number of the migration: the first four digits of its file name.';
comment on column rota.migrations.name is 'Name of the migration: its file name without the number.';
comment on column rota.migrations.breaking is 'True if code without this migration cannot run on a schema that has it.';
comment on column rota.migrations.checksum is
    'SHA-256 of the migration''s file when it was applied, in hexadecimal digits.';
comment on column rota.migrations.at is 'Time at which the migration was applied.';

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
comment on table rota.minute_stats is 'Statistics of jobs per minute, queue, task and worker.';
comment on column rota.minute_stats.minute is 'Beginning of the minute.';
comment on column rota.minute_stats.queue is 'Name of the queue.';
comment on column rota.minute_stats.task is 'Name of the task.';
comment on column rota.minute_stats.worker is 'Id of the worker; 0: all workers, compacted.';
comment on column rota.minute_stats.claimed is 'Number of jobs claimed.';
comment on column rota.minute_stats.returned is 'Number of jobs returned to the queue without an attempt.';
comment on column rota.minute_stats.succeeded is 'Number of jobs that succeeded.';
comment on column rota.minute_stats.failed is 'Number of jobs that failed.';
comment on column rota.minute_stats.cancelled is 'Number of jobs that were cancelled.';
comment on column rota.minute_stats.expired is 'Number of jobs that expired.';
comment on column rota.minute_stats.skipped is 'Number of jobs that were skipped.';
comment on column rota.minute_stats.quarantined is 'Number of jobs that were quarantined.';
comment on column rota.minute_stats.retried is 'Number of attempts that failed and are followed by another.';
comment on column rota.minute_stats.suspended is 'Number of attempts that were suspended to sleep or wait.';
comment on column rota.minute_stats.attempts is 'Number of attempts that ran and ended.';
comment on column rota.minute_stats.seconds is 'Total duration of these attempts, in seconds.';
comment on column rota.minute_stats.max_seconds is 'Longest duration of an attempt, in seconds.';
comment on column rota.minute_stats.wait_count is 'Number of claimed jobs that were queued at creation.';
comment on column rota.minute_stats.wait_seconds is 'Total time that these jobs were queued, in seconds.';
comment on column rota.minute_stats.max_wait_seconds is 'Longest time that such a job was queued, in seconds.';

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
comment on table rota.once_calls is 'Calls that are made once per key, and their results.';
comment on column rota.once_calls.key is 'Key of the call.';
comment on column rota.once_calls.token is 'Fencing token.';
comment on column rota.once_calls.instance is 'Instance that makes the call, or made it.';
comment on column rota.once_calls.nonce is
    'Number of the request that began the call. The caller recognizes its own call by it if it has to resend its '
    'request.';
comment on column rota.once_calls.host is 'Host of the caller.';
comment on column rota.once_calls.pid is 'Process id of the caller.';
comment on column rota.once_calls.label is 'Name of the caller for operators.';
comment on column rota.once_calls.started is 'Time at which the call began.';
comment on column rota.once_calls.expires is
    'Time at which the lease expires unless it is renewed. Another instance may then make the call.';
comment on column rota.once_calls.finished is 'Time at which the result was stored; null: the call is being made.';
comment on column rota.once_calls.retained_until is
    'Time until which the result is valid. The row may be deleted afterwards.';
comment on column rota.once_calls.result is 'Result of the call.';
comment on column rota.once_calls.awaited_since is
    'Time at which a waiting client requested a notification of the result; null: no client waits.';

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

create table rota.pauses (
    queue text collate "C" not null,
    at timestamp with time zone not null default rota.clock(),
    operator text not null,
    reason text not null default ''::text,
    constraint pauses_pkey PRIMARY KEY (queue)
);
comment on table rota.pauses is 'Paused queues: no job is claimed from them.';
comment on column rota.pauses.queue is 'Name of the queue.';
comment on column rota.pauses.at is 'Time at which the queue was paused.';
comment on column rota.pauses.operator is 'Operator that paused the queue.';
comment on column rota.pauses.reason is 'Reason that the operator gave; empty: none.';

create table rota.pending_releases (
    job bigint not null,
    kind rota.outcome not null,
    constraint pending_releases_pkey PRIMARY KEY (job)
);
comment on table rota.pending_releases is
    'Finished jobs and runs whose successors are not released yet: another transaction had locked the rows of the '
    'successors.';
comment on column rota.pending_releases.job is 'Id of the finished job or run.';
comment on column rota.pending_releases.kind is 'Outcome that counts for the successors.';

create table rota.progress (
    job bigint not null,
    claim bigint not null,
    at timestamp with time zone not null default rota.clock(),
    done double precision not null,
    total double precision,
    note text,
    constraint progress_pkey PRIMARY KEY (job)
) with (fillfactor=50);
comment on table rota.progress is 'Latest progress that a job''s code has reported.';
comment on column rota.progress.job is 'Id of the job.';
comment on column rota.progress.claim is
    'Claim under which it was reported. A claim with a lower id does not overwrite it.';
comment on column rota.progress.at is 'Time of the report.';
comment on column rota.progress.done is 'Amount of work done, in units of the job''s code.';
comment on column rota.progress.total is 'Amount of work in all, in the same units; null: unknown.';
comment on column rota.progress.note is 'Text that describes the current work; null: none.';

create table rota.quarantine (
    job bigint not null,
    priority smallint not null,
    attempt smallint not null,
    crashes smallint not null,
    queue text collate "C" not null,
    task text collate "C" not null,
    at timestamp with time zone not null default rota.clock(),
    error json,
    constraint quarantine_pkey PRIMARY KEY (job)
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

create table rota.queue_samples (
    minute timestamp with time zone not null,
    queue text collate "C" not null,
    queued bigint not null,
    oldest_seconds double precision not null,
    seq bigint not null,
    constraint queue_samples_pkey PRIMARY KEY (queue, minute)
);
CREATE INDEX queue_samples_minute ON rota.queue_samples USING btree (minute);
comment on table rota.queue_samples is
    'Number of queued jobs at the beginning of a minute, only for queues that were not empty, and once when a queue '
    'has become empty.';
comment on column rota.queue_samples.minute is 'Beginning of the minute.';
comment on column rota.queue_samples.queue is 'Name of the queue.';
comment on column rota.queue_samples.queued is 'Number of queued jobs.';
comment on column rota.queue_samples.oldest_seconds is 'Seconds that the oldest job has been queued.';
comment on column rota.queue_samples.seq is 'Highest number of `rota.ids` assigned by then.';

create table rota.queued (
    seq bigint not null,
    job bigint not null,
    priority smallint not null,
    attempt smallint not null default 1,
    crashes smallint not null default 0,
    queue text collate "C" not null,
    task text collate "C" not null,
    suspicion rota.suspicion
) with (autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=20000, autovacuum_vacuum_cost_delay=0, autovacuum_analyze_scale_factor=0.5);
CREATE INDEX queued_order ON rota.queued USING btree (queue, priority, seq);
CREATE INDEX queued_suspects ON rota.queued USING btree (priority DESC, seq) WHERE (suspicion IS NOT NULL);
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

create table rota.rate_limits (
    name text collate "C" not null,
    refilled_at timestamp with time zone not null,
    interval_seconds double precision not null,
    last_used timestamp with time zone not null,
    constraint rate_limits_pkey PRIMARY KEY (name)
) with (fillfactor=50);
comment on table rota.rate_limits is 'Rate limits, one row per name.';
comment on column rota.rate_limits.name is 'Name of the rate limit.';
comment on column rota.rate_limits.refilled_at is
    'Time at which all permits are available again. Each permit used moves it forward by `interval_seconds`.';
comment on column rota.rate_limits.interval_seconds is 'Seconds between permits, at the latest use.';
comment on column rota.rate_limits.last_used is 'Time of the latest use. It detects a clock that was set back.';

create table rota.refused_outcomes (
    at timestamp with time zone not null default rota.clock(),
    host text not null,
    pid integer not null,
    jobs integer not null
);
CREATE INDEX refused_outcomes_at ON rota.refused_outcomes USING btree (at);
comment on table rota.refused_outcomes is 'Outcomes that were refused because the worker no longer held the job.';
comment on column rota.refused_outcomes.at is 'Time of the refusal.';
comment on column rota.refused_outcomes.host is 'Host of the worker.';
comment on column rota.refused_outcomes.pid is 'Process id of the worker.';
comment on column rota.refused_outcomes.jobs is 'Number of refused outcomes.';

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

create table rota.services (
    name text collate "C" not null,
    every double precision,
    iteration bigint not null default 0,
    started timestamp with time zone,
    failures integer not null default 0,
    retry_at timestamp with time zone,
    constraint services_pkey PRIMARY KEY (name)
) with (fillfactor=50);
comment on table rota.services is 'Services: loops that run on one instance at a time.';
comment on column rota.services.name is 'Name of the service.';
comment on column rota.services.every is
    'Seconds from the start of an iteration to the start of the next; null: one endless call.';
comment on column rota.services.iteration is 'Number of the latest iteration.';
comment on column rota.services.started is 'Time at which the latest iteration started.';
comment on column rota.services.failures is 'Number of consecutive failures.';
comment on column rota.services.retry_at is 'Earliest start of the next iteration after a failure; null: no delay.';

create table rota.signals (
    run bigint not null,
    name text collate "C" not null,
    at timestamp with time zone,
    payload json,
    jobs bigint[] not null default '{}'::bigint[],
    constraint signals_pkey PRIMARY KEY (run, name)
);
comment on table rota.signals is
    'Signals of runs: one payload per name; the first one sent is kept. A row without a time is a signal that a job '
    'waits for.';
comment on column rota.signals.run is 'Id of the run.';
comment on column rota.signals.name is 'Name of the signal.';
comment on column rota.signals.at is 'Time at which the signal was sent; null: not sent yet.';
comment on column rota.signals.payload is 'Payload of the signal.';
comment on column rota.signals.jobs is 'Jobs that have waited for the signal.';

create table rota.sleeping (
    job bigint not null,
    wake_at timestamp with time zone not null,
    priority smallint not null,
    attempt smallint not null default 1,
    crashes smallint not null default 0,
    queue text collate "C" not null,
    task text collate "C" not null,
    signals text[],
    since timestamp with time zone not null default rota.clock(),
    constraint sleeping_pkey PRIMARY KEY (job)
);
CREATE INDEX sleeping_wake_at ON rota.sleeping USING btree (wake_at);
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
comment on table rota.steps is
    'Journal of a job: steps, sleeps, waits, values and versions, in the order in which the code reached them. An '
    'entry is inserted once; an open entry is updated when it has a result. The next attempt reads the result here '
    'instead of running the step again.';
comment on column rota.steps.job is 'Id of the job.';
comment on column rota.steps.kind is 'Kind of the entry.';
comment on column rota.steps.name is 'Name of the step, signal, value or version.';
comment on column rota.steps.number is 'Number among the entries of this kind and name, from 1.';
comment on column rota.steps."position" is
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

create table rota.trace_links (
    job bigint not null,
    trace text not null
);
CREATE INDEX trace_links_job ON rota.trace_links USING btree (job);
comment on table rota.trace_links is 'Spans of the attempts that finished before a job or run that waited for them.';
comment on column rota.trace_links.job is 'Id of the job or run that waited.';
comment on column rota.trace_links.trace is 'Position of the attempt in its trace, as a W3C traceparent.';

create table rota.waiters (
    job bigint not null,
    listener text not null,
    constraint waiters_pkey PRIMARY KEY (job, listener)
);
comment on table rota.waiters is 'Listeners that wait for the outcome of a job or run.';
comment on column rota.waiters.job is 'Id of the job or run.';
comment on column rota.waiters.listener is 'Notification channel of the listener.';

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

create table rota.worker_tasks (
    worker bigint not null,
    task text collate "C" not null,
    prefetchable boolean not null,
    constraint worker_tasks_pkey PRIMARY KEY (worker, task)
);
comment on table rota.worker_tasks is 'Tasks of a worker that has too many to send with every claim.';
comment on column rota.worker_tasks.worker is 'Id of the worker.';
comment on column rota.worker_tasks.task is 'Name of the task.';
comment on column rota.worker_tasks.prefetchable is
    'True if the worker may claim a job of this task before a slot is free. The task has more than one attempt.';

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
comment on function rota.assert_claim is
    'Assert that this claim still holds the job. A job''s code calls it in its own transaction; until that '
    'transaction ends, the job cannot be taken back. Raises RT002 if the job was taken back already, which rolls the '
    'transaction back. Public and stable.';

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
comment on function rota.assert_lock is
    'Assert that the lock, or the permit, is held under this token. Until the caller''s transaction ends, no other '
    'instance can acquire it. Raises RT004 if it is no longer held under this token, which rolls the transaction '
    'back. Public and stable.';

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
comment on function rota.assert_term is
    'Assert that this is the current term of a leader. Until the caller''s transaction ends, no other term can begin. '
    'Raises RT005 if another term has begun or this one has expired, which rolls the transaction back. Public and '
    'stable.';

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
comment on function rota.autoscale is
    'Return the desired number of workers of each queue, or of one, with the figures behind it: `arrival_rate`, jobs '
    'per second over the last five minutes (claimed jobs and growth of the backlog); `mean_seconds`, the mean '
    'duration of an attempt; queued jobs; running jobs. `target` is the number of seconds in which a backlog is to be '
    'cleared. `concurrency` is the number of job slots of one worker; if null, the mean of the queue''s active '
    'workers, that of its latest worker, or 100.';

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
            select request.job
              from unnest(wanted) as request (job)
             where not exists (select from rota.outcomes where outcomes.job = request.job)
             except all
            select each.job from unnest(bound) as each (job)
             order by 1);
        exit when missing = '{}' and look > 1;
        insert into rota.cancels (job)
        select request.job from unnest(missing || tree) as request (job) order by request.job
        on conflict do nothing;

        -- First search `queued` by the number that the job had at its start. If that fails, the job has another
        -- number: read the whole lane.
        if deep then
            with removed as (
                delete from rota.queued
                 using unnest(missing) as request (job)
                 where queued.job = request.job
                   and (queued.queue, queued.priority) in (
                       select distinct jobs.queue, jobs.priority from rota.jobs where jobs.id = any(missing))
                returning queued.job, queued.attempt
            ),
            ended as (
                insert into rota.outcomes (job, state, attempt)
                select removed.job, 'cancelled', removed.attempt from removed
                returning outcomes.job
            )
            select stopped || array(select ended.job from ended) into stopped;
        else
            with removed as (
                delete from rota.queued
                 using rota.jobs as job
                 where job.id = any(missing)
                   and queued.queue = job.queue and queued.priority = job.priority
                   and queued.seq = job.id and queued.job = job.id
                returning queued.job, queued.attempt
            ),
            ended as (
                insert into rota.outcomes (job, state, attempt)
                select removed.job, 'cancelled', removed.attempt from removed
                returning outcomes.job
            )
            select stopped || array(select ended.job from ended) into stopped;
        end if;
        perform from rota.quarantine where quarantine.job = any(missing) order by quarantine.job for update;
        with removed as (
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
              from (select removed.job, removed.attempt from removed
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
              join unnest(missing) as request (job) on request.job = member.job);
        if waits then
            perform from rota.claims where claims.id = any(here) order by claims.id for no key update;
        else
            perform from rota.claims where claims.id = any(here) for no key update skip locked;
            get diagnostics locked = row_count;
            if locked < cardinality(here) then
                raise exception 'run % is changing its state; try again', cancel.run using errcode = '40001';
            end if;
        end if;
        here := array(
            select member.job
              from rota.claims
             cross join lateral unnest(claims.jobs) as member (job)
              join unnest(missing) as request (job) on request.job = member.job
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
            raise exception 'run % kept changing its state; try again', cancel.run using errcode = '40001';
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
    perform pg_notify('rota.wake', changed.queue) from unnest(passed.queues) as changed (queue);
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
comment on function rota.cancel is
    'Cancel a run, or one job of a run, from any language. Runs that its jobs have started are cancelled, too. '
    'Returns `cancelled` if all of it has finished; `requested` if a worker holds a part of it and was asked to stop; '
    'the outcome if it had one already; null if there is no such run. Public and stable.';

create function rota.clock() returns timestamp with time zone
language sql stable parallel safe
RETURN statement_timestamp();
comment on function rota.clock is
    'Return the current time. Statements of Rota compare and set times by this clock only; tests replace it.';

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
comment on function rota.desired_workers is
    'Return the desired number of workers of a queue: one number, for KEDA and other autoscalers that run a query. '
    'Public and stable.';

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
comment on function rota.drain is
    'Request that a worker finishes its jobs and stops. Returns its state; null if there is no such worker. Public '
    'and stable.';

create function rota.fork(run bigint,
    task text,
    trace text DEFAULT NULL::text,
    OUT forked bigint,
    OUT queues text[])
language plpgsql volatile parallel unsafe
set search_path=pg_catalog, pg_temp
as $$
declare
    old       bigint[];
    new       bigint[];
    restarted bigint[];
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
    select array_agg(pair.new) into restarted from pair where pair.open;

    select placed.queues into queues from rota.place_job(forked, restarted, 1::smallint) as placed;
end
$$;
comment on function rota.fork is
    'Start a new run of a flow that repeats an old run from one of its tasks on. The task, its direct and indirect '
    'successors, and all jobs that have not succeeded run again; the outcomes of the other jobs are copied. Returns '
    'the new run and the queues that received jobs; null if there is no such run, or no such task in it.';

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
comment on function rota.fork_job is
    'Run a task''s job again from one of its steps on, in a new run. The entries before that step are copied. With '
    '`args`, the new job has these arguments. Returns the new run and its queue; null if there is no such run, or no '
    'such step in it.';

create function rota.place_job(run bigint,
    restarted bigint[],
    attempt smallint,
    OUT queues text[],
    OUT runs bigint[],
    OUT has_pending boolean)
language plpgsql volatile parallel unsafe
set search_path=pg_catalog, pg_temp
as $$
begin
    with member as materialized (
        select job.id, job.run, job.rule, job.priority, job.queue, job.task, job.successors,
               job.id = any(place_job.restarted) as open
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

    select passed.* into queues, runs, has_pending
      from rota.release_successors(null, due => place_job.restarted) as passed;
end
$$;
comment on function rota.place_job is
    'Insert jobs of a run into `waiting`. None of them may have an outcome or be in another table. Jobs without open '
    'predecessors are released at once. The run waits for all of them. Returns the same columns as '
    '`rota.release_successors`.';

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
comment on function rota.queue_depths is
    'Return the number of queued jobs of each queue, or of one, and the seconds that the oldest has been queued. At '
    'most 20,000 jobs of a queue are counted, so the cost is bounded. Above that, `exact` is false and the number is '
    'estimated from a sample of the table''s pages.';

create function rota.reap(claim bigint,
    which bigint[] DEFAULT NULL::bigint[],
    OUT jobs bigint[],
    OUT queues text[],
    OUT runs bigint[],
    OUT has_pending boolean)
language plpgsql volatile parallel unsafe
set enable_bitmapscan=off
set enable_mergejoin=off
set enable_seqscan=off
set jit=off
set search_path=pg_catalog, pg_temp
as $$
declare
    held       record;
    owner      record;
    story      text;
    wanted     bigint[];
    to_cancel  bigint[];
    new_queues text[];
begin
    jobs := '{}';
    queues := '{}';
    runs := '{}';
    has_pending := false;
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

    wanted := coalesce(reap.which, held.jobs);
    with member as materialized (
        select removed.*, held.expires is not null or coalesce(removed.job = any(owner.charged_jobs), false) as charged,
               coalesce(removed.job = any(owner.doubtful_jobs), false) as doubtful
          from rota.remove_from_claims(
               held.worker, array_fill(held.id, array[cardinality(wanted)]), wanted, exclusive => true) as removed
    ),
    ended as (
        insert into rota.outcomes (job, worker, state, attempt)
        select member.job, held.worker, 'cancelled', member.attempt
          from member
         where member.to_cancel
        on conflict (job) do nothing
    ),
    kept as (
        insert into rota.attempts (job, worker, state, attempt, error)
        select member.job, held.worker, 'failed', member.attempt,
               json_build_object('type', 'rota.errors.WorkerLost', 'message', story, 'traceback', '',
                                 'attempt', member.attempt)
          from member
         where (member.charged or member.doubtful) and not member.to_cancel
    ),
    blamed as (
        select member.*, is_blameless, (member.crashes + case
                   when is_blameless then 0
                   -- It was lost together with other jobs before; those losses are now attributed to it.
                   when member.charged and member.crashes = 0 and member.suspicion = 'grave' then 3
                   when member.charged and member.crashes = 0 and member.suspicion = 'mild' then 2
                   when member.doubtful and member.crashes = 0 and member.suspicion = 'grave' then 2
                   when member.doubtful and member.crashes = 0 then 0
                   when member.charged or member.doubtful then 1
                   when member.crashes = 1 and member.suspicion = 'mild' then 1
                   else 0 end)::smallint as new_crashes
          from member
         cross join lateral (select owner.state = 'stopped' and not member.charged) as stopped (is_blameless)
    ),
    enqueued as (
        insert into rota.queued (seq, job, priority, attempt, crashes, suspicion, queue, task)
        select blamed.seq, blamed.job, job.priority,
               case when blamed.charged or blamed.doubtful then blamed.attempt + 1 else blamed.attempt end,
               blamed.new_crashes,
               case when blamed.is_blameless then blamed.suspicion
                    when blamed.suspicion is not null or blamed.new_crashes > 1 then 'grave'
                    else 'mild' end::rota.suspicion,
               job.queue, job.task
          from blamed
         cross join lateral (
               select jobs.priority, jobs.queue, jobs.task from rota.jobs where jobs.id = blamed.job offset 0
               ) as job
         where not blamed.to_cancel
        returning queued.queue
    )
    select array(select member.job from member), array(select member.job from member where member.to_cancel),
           array(select distinct enqueued.queue from enqueued)
      into reap.jobs, to_cancel, new_queues;

    select new_queues || passed.queues, passed.runs, passed.has_pending into queues, runs, has_pending
      from rota.release_successors(to_cancel, array_fill('cancelled'::rota.outcome,
                                                        array[cardinality(to_cancel)])) as passed;
end
$$;
comment on function rota.reap is
    'Take back the jobs of a claim if its worker is lost or the claim has expired. With `which`, only these jobs are '
    'taken back: if one job cannot be moved, the caller moves the remaining jobs this way. Returns the jobs taken '
    'back, the queues that received jobs, the runs that finished, and `has_pending`: true if releases are left in '
    '`pending_releases`. No jobs: there was nothing to do, or another transaction holds the lock of the claim and the '
    'caller retries.';

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
    with freed as (
        delete from rota.quarantine
         where quarantine.job = any(members)
        returning quarantine.*
    ),
    enqueued as (
        insert into rota.queued (seq, job, priority, attempt, queue, task)
        select nextval('rota.ids'), freed.job, freed.priority, freed.attempt, freed.queue, freed.task
          from (select freed.* from freed order by freed.job) as freed
        returning queued.queue
    ),
    notified as (
        select pg_notify('rota.wake', changed.queue)
          from (select distinct enqueued.queue from enqueued) as changed
    )
    select (select count(*) from enqueued) + 0 * (select count(*) from notified) into released;
    return released;
end
$$;
comment on function rota.release is
    'Release the jobs of a run from quarantine, or one job: each gets one more attempt. Returns the number of jobs. '
    'Public and stable.';

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
comment on function rota.release_lock is
    'Release a lock, or a permit, by force. A new token is drawn, so the old token of the holder is refused from then '
    'on. The action is written to `audit`. Returns the holder; null if the lock is free. Waits at most two seconds '
    'for a transaction that has asserted the lock.';

create function rota.release_pending(most integer,
    OUT queues text[],
    OUT runs bigint[],
    OUT has_pending boolean)
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
        has_pending := false;
        return;
    end if;
    select passed.* into queues, runs, has_pending
      from rota.release_successors(ended, kinds, with_runs => true) as passed;
end
$$;
comment on function rota.release_pending is
    'Release the successors of up to `most` entries of `pending_releases`. Returns the same columns as '
    '`rota.release_successors`.';

create function rota.release_successors(ended bigint[],
    kinds rota.outcome[] DEFAULT NULL::rota.outcome[],
    with_runs boolean DEFAULT false,
    due bigint[] DEFAULT NULL::bigint[],
    OUT queues text[],
    OUT runs bigint[],
    OUT has_pending boolean)
language plpgsql volatile parallel unsafe
set search_path=pg_catalog, pg_temp
as $$
declare
    waits       boolean := true;                        -- first round: wait for locks
    present     integer;
    max_blocked integer;                                -- upper bound of targets that keep open predecessors
    targets     bigint[];                               -- successors of this round, parallel to the arrays below
    parents     integer[];
    faults      integer[];
    stops       integer[];
    skips       integer[];
    new_queues  text[];
    over        bigint[];
begin
    queues := '{}';
    runs := '{}';
    has_pending := false;
    loop
        if release_successors.due is not null then
            select array_agg(each.job order by each.job), array_agg(1), array_agg(0), array_agg(0), array_agg(0)
              into targets, parents, faults, stops, skips
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
              into targets, parents, faults, stops, skips
              from total;
        end if;
        exit when targets is null;

        -- Lock in the order of ids. The statement after this one sees counts and cancel requests as of these locks.
        if waits then
            select count(*) filter (where row.open > due.parents) into max_blocked
              from (select due.job, due.parents
                      from unnest(targets, parents) as due (job, parents) order by due.job) as due
             cross join lateral (
                   select waiting.open from rota.waiting where waiting.job = due.job for update offset 0) as row;
        else
            select count(*) into present from rota.waiting where waiting.job = any(targets);
            perform from rota.waiting where waiting.job = any(targets) for update skip locked;
            get diagnostics max_blocked = row_count;
            if max_blocked < present then
                insert into rota.pending_releases (job, kind)
                select each.job, each.kind from unnest(release_successors.ended,
                                                       release_successors.kinds) as each (job, kind);
                has_pending := true;
                exit;
            end if;
        end if;

        with due as (
            select * from unnest(targets, parents, faults, stops, skips)
                       as due (job, parents, faults, stops, skips)
        ),
        counted as (
            update rota.waiting
               set open = waiting.open - due.parents, failed = waiting.failed + due.faults,
                   cancelled = waiting.cancelled + due.stops, skipped = waiting.skipped + due.skips
              from due
             where max_blocked > 0
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
        requested as (
            select through.*,
                   (select exists (select from rota.cancels))
                       and exists (select from rota.cancels where cancels.job = through.job) as to_cancel
              from through
        ),
        judged as materialized (
            select requested.*,
                   not to_cancel
                   and case requested.rule
                            when 'all_succeeded' then failed + cancelled + skipped = 0
                            when 'none_failed' then failed + cancelled = 0
                            when 'all_done' then true
                            when 'any_failed' then failed > 0
                       end as goes,
                   -- How it counts for its own successors. Only a run has no rule.
                   case when requested.rule is not null and to_cancel then 'cancelled'
                        when failed > 0 then 'failed'
                        when cancelled > 0 then 'cancelled'
                        when requested.rule is null then 'succeeded'
                        else 'skipped'
                   end::rota.outcome as kind
              from requested
        ),
        enqueued as (
            insert into rota.queued (seq, job, priority, attempt, queue, task)
            select nextval('rota.ids'), judged.job, judged.priority, judged.attempt, judged.queue, judged.task
              from (select judged.* from judged where judged.goes order by judged.job) as judged
            returning queued.queue
        ),
        skipped as (
            insert into rota.outcomes (job, state, attempt, error)
            select judged.job, case when judged.to_cancel then 'cancelled' else 'skipped' end::rota.outcome,
                   judged.attempt,
                   case when judged.kind <> 'skipped' and not judged.to_cancel then
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
                   case when judged.kind = 'failed' and judged.to_cancel then 'cancelled' else judged.kind end,
                   judged.attempt
              from judged
             where judged.rule is null
        ),
        cleared as (
            delete from rota.cancels
             where cancels.job = any(array(select judged.job from judged where judged.to_cancel))
        )
        select array(select distinct enqueued.queue from enqueued),
               array_agg(judged.job) filter (where judged.rule is null),
               array_agg(judged.job), array_agg(judged.kind)
          into new_queues, over, release_successors.ended, release_successors.kinds
          from judged
         where judged.rule is null or not judged.goes;

        queues := queues || new_queues;
        runs := runs || over;
        exit when release_successors.ended is null;
        waits := false;
        release_successors.with_runs := true;
    end loop;
end
$$;
comment on function rota.release_successors is
    'Release the successors of jobs and runs that have finished. The caller records the outcomes in the same '
    'transaction. Returns the queues that received jobs, the runs that finished, and `has_pending`: true if releases '
    'are left in `pending_releases`, for `rota.release_pending`.';

create function rota.remove_from_claims(owner bigint,
    claim_ids bigint[],
    job_ids bigint[],
    exclusive boolean DEFAULT false)
language plpgsql volatile parallel unsafe
set search_path=pg_catalog, pg_temp
as $$
begin
    -- Locked in the order of ids. The next statement reads the claims and cancel requests as of the locks.
    if remove_from_claims.exclusive then
        perform from rota.claims
          where claims.id = any(claim_ids) and claims.worker = owner
          order by claims.id
            for update;
    else
        perform from rota.claims
          where claims.id = any(claim_ids) and claims.worker = owner
          order by claims.id
            for no key update;
    end if;
    return query
    with member as materialized (
        select claims.id as claim, claims.suspicion, member.job, member.attempt, member.crashes, member.seq,
               member.number, given.job is not null as removed
          from rota.claims
         cross join lateral unnest(claims.jobs, claims.attempts, claims.crashes, claims.seqs)
               with ordinality as member (job, attempt, crashes, seq, number)
          left join unnest(claim_ids, job_ids) as given (claim, job)
                 on given.claim = claims.id and given.job = member.job
         where claims.id = any(claim_ids) and claims.worker = owner
    ),
    remaining as materialized (
        select member.claim,
               array_agg(member.job order by member.number) filter (where not member.removed) as jobs,
               array_agg(member.attempt order by member.number) filter (where not member.removed) as attempts,
               array_agg(member.crashes order by member.number) filter (where not member.removed) as crashes,
               array_agg(member.seq order by member.number) filter (where not member.removed) as seqs
          from member
         group by member.claim
        having bool_or(member.removed)
    ),
    emptied as (
        delete from rota.claims
         where claims.id = any(array(select remaining.claim from remaining where remaining.jobs is null))
    ),
    shrunk as (
        update rota.claims
           set jobs = remaining.jobs, attempts = remaining.attempts, crashes = remaining.crashes,
               seqs = remaining.seqs
          from remaining
         where claims.id = remaining.claim
           and remaining.jobs is not null
    ),
    request as (
        delete from rota.cancels
         where (select exists (select from rota.cancels))
           and cancels.job = any(array(select member.job from member where member.removed))
        returning cancels.job
    )
    select member.claim, member.job, member.attempt, member.crashes, member.seq, member.suspicion,
           member.job = any(array(select request.job from request))
      from member
     where member.removed;
end
$$;
comment on function rota.remove_from_claims is
    'Remove jobs from the claims of a worker, and delete claims without jobs. All moves of claimed jobs use this '
    'function, except `job/complete`. Returns the jobs that were still in the claim given; `to_cancel` is true if '
    'there was a cancel request, which is deleted. The caller moves these jobs in the same transaction. `exclusive` '
    'also waits for a transaction of the job''s code that has locked the claim for key share.';

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
comment on function rota.reserve_key is
    'Reserve an idempotency key for a run. Returns the id of the run that has the key: the given one, or the one that '
    'reserved it before. Raises RT001 if an open transaction holds the key for more than two seconds.';

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
    ended     record;
    members   bigint[];
    calls     boolean;
    whole     bigint;
    restarted bigint[];
    answer    text[];
begin
    select jobs.run into whole from rota.jobs where jobs.id = retry.run;
    if whole is not null then
        raise exception 'job % is a part of run %; retry the run', retry.run, whole
            using errcode = 'RT003';
    end if;
    select waiting.job into whole
      from rota.runs
      join rota.waiting on waiting.job = any(runs.successors)
     where runs.id = retry.run;
    if found then
        raise exception 'run % is a part of run %, which is still open; retry that run when it has ended',
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
        restarted := array[retry.run];
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
        select array_agg(undone.job) into restarted from undone;

        -- The inputs of the direct successors may change, so these make their calls and run their steps again.
        if not calls then
            update rota.runs
               set number = null
             where runs.parent = any(array(
                   select child.job
                     from rota.jobs as job
                    cross join lateral unnest(job.successors) as child (job)
                    where job.id = any(restarted)))
               and runs.number is not null;
            delete from rota.steps
             where steps.job = any(array(
                   select child.job
                     from rota.jobs as job
                    cross join lateral unnest(job.successors) as child (job)
                    where job.id = any(restarted) and child.job <> retry.run));
        end if;
    end if;

    with deleted as (
        delete from rota.outcomes
         where outcomes.job = any(restarted) or outcomes.job = retry.run
        returning outcomes.*
    ),
    kept as (
        insert into rota.attempts (job, claim, worker, at, seconds, state, attempt, result, error)
        select deleted.job, deleted.claim, deleted.worker, deleted.at, deleted.seconds, deleted.state,
               deleted.attempt, deleted.result, deleted.error
          from deleted
         where deleted.state <> 'skipped'
    )
    delete from rota.cancels where cancels.job = any(array(select deleted.job from deleted));

    if members is not null then
        -- Flows that are parts of this run have runs of their own.
        select array_agg(changed.queue) into answer
          from rota.runs as whole
          join rota.runs as part on part.parent = whole.parent and part.successors = array[whole.id]
         cross join lateral unnest(rota.retry(part.id)) as changed (queue)
         where whole.id = retry.run;
        select answer || placed.queues into answer from rota.place_job(
               retry.run, coalesce(restarted, '{}'),
               coalesce(retry.attempt, (ended.attempt + 1)::smallint)) as placed;
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
comment on function rota.retry is
    'Retry a run that failed, expired or was cancelled. Returns the queues that received jobs; null if the run has '
    'not finished, has succeeded or does not exist. The new attempt of the run has the number `attempt`, or the next '
    'one. Raises RT003 for a part of another run. Public and stable.';

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
comment on function rota.start is
    'Start a task from any language, in the caller''s own transaction. Returns the run, and `created`: true if this '
    'call created it, false if another run has the key. If an open transaction holds the key, the call fails with '
    'RT001 after two seconds. Raises RT003 for invalid arguments. Public and stable.';

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
comment on function rota.workers_needed is
    'Return the number of workers that a load requires: for the arrivals or the jobs already running, and to clear '
    'the backlog within `target` seconds.';
