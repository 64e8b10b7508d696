-- breaking: no
-- What instances agree on: locks and permits, leaders, services, results of calls made once, rates, alerts.
--
-- A hold is a row with a time at which it ends by itself. Who takes one over locks its row `for update`; who relies
-- on one in a transaction of his own pins it `for key share`; who renews one updates it, which does not disturb the
-- pin. So a hold passes on only when no transaction that relied on it is open.

-- Fencing tokens: each is larger than all before it, for whatever it was drawn. Nothing is cached, else they would
-- rise in each session by itself.
create sequence rota.tokens cache 1;

-- A lock is slot 0 of its name, a semaphore's permits are the slots from 1. Rows stay: a free one has no instance.
-- Updated in place with every renewal: nothing that changes is indexed.
create table rota.locks (
    name     text collate "C" not null,
    slot     integer not null,
    token    bigint not null,
    instance uuid,                                      -- null: free
    nonce    uuid,                                      -- of the one call that took it, which may have to ask again
    host     text,
    pid      integer,
    label    text,
    acquired timestamptz,
    expires  timestamptz,
    renewals integer not null default 0,
    max_held  float8,                                    -- seconds after which holding it is worth an alert
    awaited_since   timestamptz,                               -- somebody waits to be told that it is free
    primary key (name, slot)
) with (fillfactor = 50);

-- Who leads, and in which term: they are counted. Without a time of expiry the term is held by an advisory lock
-- of a session, and ends with it.
create table rota.leaders (
    name      text collate "C" primary key,
    term      bigint not null,
    instance  uuid,                                     -- null: nobody
    host      text,
    pid       integer,
    label     text,
    since     timestamptz,
    expires   timestamptz,
    session_lock      integer,                                  -- the second half of the advisory lock
    elections timestamptz[] not null default '{}'       -- the last few
) with (fillfactor = 50);

-- Instances that run services, or stand by to.
create table rota.instances (
    id       uuid primary key,
    host     text not null,
    pid      integer not null,
    label    text not null,
    version  text not null,
    started  timestamptz not null default rota.clock(),
    last_seen     timestamptz not null default rota.clock(),
    expires  timestamptz not null,
    services text[] not null,                           -- those it knows
    running  text[] not null default '{}'               -- those it runs
) with (fillfactor = 50);

-- Loops that run on one instance.
create table rota.services (
    name      text collate "C" primary key,
    every     float8,                                   -- seconds from start to start; null: it goes on for ever
    iteration bigint not null default 0,                -- the last one that began
    started   timestamptz,
    failures  integer not null default 0,               -- in a row
    retry_at     timestamptz                               -- not before then, after a failure
) with (fillfactor = 50);

-- What became of each time a service ran, the last thousand of each.
create table rota.iterations (
    service  text collate "C" not null,
    number   bigint not null,
    term     bigint not null,
    instance uuid not null,
    host     text not null,
    pid      integer not null,
    started  timestamptz not null default rota.clock(),
    ended    timestamptz,
    outcome  text,                                      -- succeeded, failed, stopped, lost; null: not known
    error    json,
    primary key (service, number)
);

-- Results of calls that are made once for a key.
create table rota.once_calls (
    key      text collate "C" primary key,
    token    bigint not null,
    instance uuid not null,                             -- who makes the call, or made it
    nonce    uuid not null,
    host     text not null,
    pid      integer not null,
    label    text not null,
    started    timestamptz not null,
    expires  timestamptz not null,                      -- by then it is finished, or its turn is somebody else's
    finished timestamptz,
    retained_until    timestamptz not null,                      -- the row is of use until then
    result   json,
    awaited_since   timestamptz                                -- somebody waits to be told what comes of it
) with (fillfactor = 70);
create index once_calls_retained_until on rota.once_calls (retained_until);

-- One row a rate: when the next would be due, were nothing saved up.
create table rota.rate_limits (
    name  text collate "C" primary key,
    refilled_at   timestamptz not null,
    interval_seconds float8 not null,                              -- seconds from one to the next, when that was reckoned
    last_used  timestamptz not null                          -- when that was, so that a clock put back is noticed
) with (fillfactor = 50);

-- What somebody should look at. One that is not cleared is there once for its kind and subject.
create table rota.alerts (
    id      bigint generated always as identity primary key,
    kind    text collate "C" not null,
    subject text collate "C" not null,
    message text not null,
    token   bigint,                                     -- of the hold it is about
    raised  timestamptz not null default rota.clock(),
    cleared timestamptz,
    host    text not null,
    pid     integer not null
);
create unique index alerts_open on rota.alerts (kind, subject) where cleared is null;

-- What people did by hand.
create table rota.audit (
    id      bigint generated always as identity primary key,
    at      timestamptz not null default rota.clock(),
    operator     text not null,
    action  text not null,
    subject text not null,
    detail  json not null default '{}'
);

-- Called in a transaction that may only happen under the lock, or the permit: from here to its end nobody else gets
-- it. Raises RT004 if it is no longer held under this token: what the transaction did is undone with it.
create function rota.assert_lock(name text, token bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
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

-- The same for what only a leader may do. Raises RT005 if this is not the term, or it has run out.
create function rota.assert_term(name text, term bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
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

-- Take a lock, or a permit, from whoever holds it. Its token is drawn anew, so that he can do no more under the old
-- one; who did this is written down. Answers who held it; null: nobody does.
--
-- Waits, but not for long, for a transaction that relies on it.
create function rota.release_lock(name text, slot integer, operator text, token bigint default null) returns json
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
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
    values (release_lock.operator, 'release lock', release_lock.name || case when held.slot > 0 then ' permit ' || held.slot else '' end,
            holder);
    perform pg_notify('rota.locks', release_lock.name);
    return holder;
end
$$;
