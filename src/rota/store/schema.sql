-- What the migrations add up to. Written by `make schema` and compared by a test; not for editing,
-- and not what a database is made from.

create sequence rota.ids as bigint start 1 increment 1 minvalue 1 maxvalue 9223372036854775807 cache 1;

create type rota.outcome as enum ('succeeded', 'failed', 'cancelled', 'expired');

create table rota.asleep (
    job bigint not null,
    wake timestamp with time zone not null,
    lane smallint not null,
    attempt smallint not null default 1,
    lost smallint not null default 0,
    queue text collate "C" not null,
    task text collate "C" not null,
    since timestamp with time zone not null default rota.clock(),
    constraint asleep_pkey PRIMARY KEY (job)
);
CREATE INDEX asleep_wake ON rota.asleep USING btree (wake);

create table rota.attempts (
    job bigint not null,
    claim bigint,
    worker bigint,
    at timestamp with time zone not null default rota.clock(),
    took real,
    state rota.outcome not null,
    attempt smallint not null,
    result json,
    error json
);
CREATE INDEX attempts_job ON rota.attempts USING btree (job, attempt);

create table rota.cancels (
    job bigint not null,
    at timestamp with time zone not null default rota.clock(),
    constraint cancels_pkey PRIMARY KEY (job)
);

create table rota.claims (
    id bigint not null generated always as identity,
    worker bigint not null,
    nonce uuid not null,
    at timestamp with time zone not null default rota.clock(),
    jobs bigint[] not null storage external,
    attempts smallint[] not null storage external,
    lost smallint[] not null storage external,
    seqs bigint[] not null storage external,
    constraint claims_pkey PRIMARY KEY (id)
) with (fillfactor=50, autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=500, autovacuum_vacuum_cost_delay=0);

create table rota.jobs (
    id bigint not null default nextval('rota.ids'::regclass),
    run bigint,
    created timestamp with time zone not null default rota.clock(),
    expires timestamp with time zone,
    lane smallint not null default 0,
    task text collate "C" not null,
    queue text collate "C" not null,
    key text collate "C",
    args json not null,
    options json,
    constraint jobs_pkey PRIMARY KEY (id),
    constraint jobs_lane_check CHECK (((lane >= 0) AND (lane <= 9)))
);

create table rota.keys (
    task text collate "C" not null,
    key text collate "C" not null,
    run bigint not null,
    until timestamp with time zone,
    while_open boolean not null default false,
    constraint keys_pkey PRIMARY KEY (task, key)
);

create table rota.migrations (
    version integer not null,
    name text not null,
    at timestamp with time zone not null default now(),
    constraint migrations_pkey PRIMARY KEY (version)
);

create table rota.outcomes (
    job bigint not null,
    claim bigint,
    worker bigint,
    at timestamp with time zone not null default rota.clock(),
    took real,
    state rota.outcome not null,
    attempt smallint not null,
    result json,
    error json,
    constraint outcomes_pkey PRIMARY KEY (job)
);

create table rota.ready (
    seq bigint not null,
    job bigint not null,
    lane smallint not null,
    attempt smallint not null default 1,
    lost smallint not null default 0,
    queue text collate "C" not null,
    task text collate "C" not null
) with (autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=20000, autovacuum_vacuum_cost_delay=0, autovacuum_analyze_scale_factor=0.5);
CREATE INDEX ready_order ON rota.ready USING btree (queue, lane, seq);

create table rota.waiters (
    job bigint not null,
    listener text not null,
    constraint waiters_pkey PRIMARY KEY (job, listener)
);

create table rota.workers (
    id bigint not null generated always as identity,
    host text not null,
    pid integer not null,
    version text not null,
    queues text[] not null,
    tasks text[] not null,
    capacity integer not null,
    started timestamp with time zone not null default rota.clock(),
    beat timestamp with time zone not null default rota.clock(),
    constraint workers_pkey PRIMARY KEY (id)
) with (fillfactor=50);

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
            WHEN (asleep.job IS NOT NULL) THEN 'asleep'::text
            ELSE 'ready'::text
        END) AS state,
    (COALESCE((outcome.attempt)::integer, (held.attempt)::integer, (asleep.attempt)::integer, ( SELECT (max(attempts.attempt) + 1)
           FROM rota.attempts
          WHERE (attempts.job = job.id)), 1))::smallint AS attempt,
    COALESCE(outcome.worker, held.worker) AS worker,
    COALESCE(outcome.at, held.at, asleep.since, ( SELECT max(attempts.at) AS max
           FROM rota.attempts
          WHERE (attempts.job = job.id)), job.created) AS since
   FROM (((rota.jobs job
     LEFT JOIN rota.outcomes outcome ON ((outcome.job = job.id)))
     LEFT JOIN rota.asleep ON ((asleep.job = job.id)))
     LEFT JOIN ( SELECT member.job,
            member.attempt,
            claims.worker,
            claims.at
           FROM (rota.claims
             CROSS JOIN LATERAL UNNEST(claims.jobs, claims.attempts) member(job, attempt))) held ON ((held.job = job.id)));

create function rota.cancel(run bigint) returns text
language plpgsql volatile parallel unsafe
set lock_timeout=2s
set search_path=pg_catalog, pg_temp
as $$
declare
    wanted rota.jobs;
    answer text;
begin
    select * into wanted from rota.jobs where id = cancel.run;
    if not found then
        return null;
    end if;
    insert into rota.cancels (job) values (cancel.run) on conflict do nothing;

    for look in 1..1000 loop
        with gone as (
            delete from rota.ready
             where ready.queue = wanted.queue and ready.lane = wanted.lane
               and ready.seq = wanted.id and ready.job = wanted.id
            returning ready.attempt
        )
        insert into rota.outcomes (job, state, attempt)
        select wanted.id, 'cancelled', gone.attempt from gone;
        if not found then
            with gone as (
                delete from rota.asleep where asleep.job = wanted.id returning asleep.attempt
            )
            insert into rota.outcomes (job, state, attempt)
            select wanted.id, 'cancelled', gone.attempt from gone;
        end if;
        if not found then
            perform from rota.claims where wanted.id = any(claims.jobs) for update;
            if found then
                perform pg_notify('rota.wake', '!cancel');
                return 'requested';
            end if;
            select outcomes.state::text into answer from rota.outcomes where outcomes.job = wanted.id;
            if found then
                delete from rota.cancels where cancels.job = wanted.id;
                return answer;
            end if;
            -- It came back under another number: nothing but reading the lane finds it.
            with gone as (
                delete from rota.ready
                 where ready.queue = wanted.queue and ready.lane = wanted.lane and ready.job = wanted.id
                returning ready.attempt
            )
            insert into rota.outcomes (job, state, attempt)
            select wanted.id, 'cancelled', gone.attempt from gone;
        end if;
        if found then
            delete from rota.cancels where cancels.job = wanted.id;
            perform pg_notify(waiters.listener, waiters.job::text)
               from rota.waiters where waiters.job = wanted.id;
            return 'cancelled';
        end if;
    end loop;
    raise exception 'run % kept moving; try again', cancel.run using errcode = '40001';
end
$$;

create function rota.clock() returns timestamp with time zone
language sql stable parallel safe
RETURN statement_timestamp();

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
    OUT run bigint,
    OUT created boolean)
language plpgsql volatile parallel unsafe
set lock_timeout=2s
set search_path=pg_catalog, pg_temp
as $$
begin
    if start.priority not between 0 and 9 then
        raise exception 'priority must be from 0 to 9, not %', start.priority using errcode = 'RT003';
    end if;
    if json_typeof(start.args) <> 'object' then
        raise exception 'args must be a JSON object, the task''s arguments by name, not a %',
            json_typeof(start.args) using errcode = 'RT003';
    end if;

    run := nextval('rota.ids');
    created := true;

    if start.key is not null then
        loop
            begin
                insert into rota.keys as held (task, key, run, until, while_open)
                values (start.task, start.key, start.run,
                        rota.clock() + start.unique_for, start.unique_open)
                on conflict on constraint keys_pkey do update
                   set run = excluded.run, until = excluded.until, while_open = excluded.while_open
                 where held.until <= rota.clock()
                    or (held.while_open
                        and exists (select from rota.outcomes where outcomes.job = held.run));
            exception when lock_not_available then
                raise exception 'key % of task % is held by an open transaction', start.key, start.task
                    using errcode = 'RT001';
            end;
            exit when found;
            -- A new statement: the insert's own snapshot may be older than the row it met.
            select held.run into start.run
              from rota.keys as held
             where held.task = start.task and held.key = start.key;
            if found then
                created := false;
                return;
            end if;
        end loop;
    end if;

    start.at := coalesce(start.at, rota.clock() + start.delay);
    insert into rota.jobs (id, expires, lane, task, queue, key, args, options)
    values (start.run, coalesce(start.expires, rota.clock() + start.expires_in),
            start.priority, start.task, start.queue, start.key, start.args, start.options);

    if start.at > rota.clock() then
        insert into rota.asleep (job, wake, lane, queue, task)
        values (start.run, start.at, start.priority, start.queue, start.task);
    else
        insert into rota.ready (seq, job, lane, queue, task)
        values (start.run, start.run, start.priority, start.queue, start.task);
    end if;

    if start.notify then
        perform pg_notify('rota.wake', start.queue);
    end if;
end
$$;

comment on view rota.job_state is 'Where each job is: ready, asleep, running, succeeded, failed, cancelled or expired. Public and stable.';
