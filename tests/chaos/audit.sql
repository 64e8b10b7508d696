-- For tests only: the database's own record of the places of jobs and the states of workers.
--
-- One row for each place a job enters or leaves, written by the transaction that moves it. That transaction
-- holds the lock of the row it moves, so the order of ids is the order of moves of any one job.
create schema chaos;

create table chaos.audit (
    id      bigint generated always as identity primary key,
    tx      bigint not null default pg_current_xact_id()::text::bigint,
    at      timestamptz not null default clock_timestamp(),
    began   timestamptz not null default statement_timestamp(),
    place   text not null,
    enters  boolean not null,
    job     bigint not null,
    claim   bigint,
    worker  bigint,
    attempt integer,
    crashes    integer,
    state   text
);

create table chaos.presence (
    id     bigint generated always as identity primary key,
    at     timestamptz not null default clock_timestamp(),
    worker bigint not null,
    pid    integer not null,
    state  text not null
);

-- Effects that jobs write in their own transactions. There is no key, so that a second effect is visible.
create table chaos.effects (
    id      bigint generated always as identity primary key,
    tx      bigint not null default pg_current_xact_id()::text::bigint,
    at      timestamptz not null default clock_timestamp(),
    job     bigint not null,
    attempt integer not null,
    who     text not null
);

-- Effects that steps of durable functions write in their transactions.
create table chaos.steps (
    id    bigint generated always as identity primary key,
    tx    bigint not null default pg_current_xact_id()::text::bigint,
    job   bigint not null,
    step  text not null,
    value text not null,
    who   text not null
);

-- Journal entries of durable functions, once for each write.
create table chaos.kept (
    id     bigint generated always as identity primary key,
    tx     bigint not null default pg_current_xact_id()::text::bigint,
    at     timestamptz not null default clock_timestamp(),
    job    bigint not null,
    kind   text not null,
    name   text not null,
    open   boolean not null,
    until  timestamptz,
    result json,
    again  boolean not null
);

create function chaos.step_kept() returns trigger language plpgsql as $$
begin
    insert into chaos.kept (job, kind, name, open, until, result, again)
    values (new.job, new.kind::text, new.name, new.open, new.wake_at, new.result, tg_op = 'UPDATE' and not old.open);
    return null;
end $$;

create trigger audit_kept after insert or update on rota.steps
    for each row execute function chaos.step_kept();

create function chaos.claims_made() returns trigger language plpgsql as $$
begin
    insert into chaos.audit (place, enters, job, claim, worker, attempt, crashes)
    select 'claim', true, member.job, fresh.id, fresh.worker, member.attempt, member.crashes
      from fresh cross join lateral unnest(fresh.jobs, fresh.attempts, fresh.crashes) as member (job, attempt, crashes);
    return null;
end $$;

create function chaos.claims_gone() returns trigger language plpgsql as $$
begin
    insert into chaos.audit (place, enters, job, claim, worker)
    select 'claim', false, member.job, stale.id, stale.worker
      from stale cross join lateral unnest(stale.jobs) as member (job);
    return null;
end $$;

create function chaos.claims_changed() returns trigger language plpgsql as $$
begin
    insert into chaos.audit (place, enters, job, claim, worker)
    select 'claim', false, member.job, stale.id, stale.worker
      from stale
      join fresh on fresh.id = stale.id
     cross join lateral unnest(stale.jobs) as member (job)
     where member.job <> all(fresh.jobs);
    insert into chaos.audit (place, enters, job, claim, worker, attempt, crashes)
    select 'claim', true, member.job, fresh.id, fresh.worker, member.attempt, member.crashes
      from fresh
      join stale on stale.id = fresh.id
     cross join lateral unnest(fresh.jobs, fresh.attempts, fresh.crashes) as member (job, attempt, crashes)
     where member.job <> all(stale.jobs);
    return null;
end $$;

create trigger audit_made after insert on rota.claims
    referencing new table as fresh for each statement execute function chaos.claims_made();
create trigger audit_gone after delete on rota.claims
    referencing old table as stale for each statement execute function chaos.claims_gone();
create trigger audit_changed after update on rota.claims
    referencing old table as stale new table as fresh for each statement
    execute function chaos.claims_changed();

create function chaos.outcomes_made() returns trigger language plpgsql as $$
begin
    insert into chaos.audit (place, enters, job, claim, worker, attempt, state)
    select 'outcome', true, fresh.job, fresh.claim, fresh.worker, fresh.attempt, fresh.state from fresh;
    return null;
end $$;

create function chaos.outcomes_gone() returns trigger language plpgsql as $$
begin
    insert into chaos.audit (place, enters, job, claim, worker, attempt, state)
    select 'outcome', false, stale.job, stale.claim, stale.worker, stale.attempt, stale.state from stale;
    return null;
end $$;

create trigger audit_made after insert on rota.outcomes
    referencing new table as fresh for each statement execute function chaos.outcomes_made();
create trigger audit_gone after delete on rota.outcomes
    referencing old table as stale for each statement execute function chaos.outcomes_gone();
create trigger audit_changed after update on rota.outcomes
    referencing old table as stale for each statement execute function chaos.outcomes_gone();

create function chaos.place_entered() returns trigger language plpgsql as $$
begin
    insert into chaos.audit (place, enters, job, attempt, crashes)
    select tg_argv[0], true, fresh.job, fresh.attempt, fresh.crashes from fresh;
    return null;
end $$;

create function chaos.wait_entered() returns trigger language plpgsql as $$
begin
    insert into chaos.audit (place, enters, job, attempt) select 'waiting', true, fresh.job, fresh.attempt from fresh;
    return null;
end $$;

create function chaos.place_left() returns trigger language plpgsql as $$
begin
    insert into chaos.audit (place, enters, job) select tg_argv[0], false, stale.job from stale;
    return null;
end $$;

create trigger audit_made after insert on rota.queued
    referencing new table as fresh for each statement execute function chaos.place_entered('queued');
create trigger audit_gone after delete on rota.queued
    referencing old table as stale for each statement execute function chaos.place_left('queued');
create trigger audit_made after insert on rota.sleeping
    referencing new table as fresh for each statement execute function chaos.place_entered('sleeping');
create trigger audit_gone after delete on rota.sleeping
    referencing old table as stale for each statement execute function chaos.place_left('sleeping');
create trigger audit_made after insert on rota.quarantine
    referencing new table as fresh for each statement execute function chaos.place_entered('quarantine');
create trigger audit_gone after delete on rota.quarantine
    referencing old table as stale for each statement execute function chaos.place_left('quarantine');
create trigger audit_made after insert on rota.waiting
    referencing new table as fresh for each statement execute function chaos.wait_entered();
create trigger audit_gone after delete on rota.waiting
    referencing old table as stale for each statement execute function chaos.place_left('waiting');

-- A trigger per row is enough, because changes are rare.
create function chaos.presence_changed() returns trigger language plpgsql as $$
begin
    insert into chaos.presence (worker, pid, state) values (new.id, new.pid, new.state::text);
    return null;
end $$;

create trigger audit_came after insert on rota.workers
    for each row execute function chaos.presence_changed();
create trigger audit_changed after update of state on rota.workers
    for each row when (old.state is distinct from new.state) execute function chaos.presence_changed();
