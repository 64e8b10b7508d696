-- breaking: no
-- Coordination of instances: locks and semaphores, leaders, services, results of calls made once, rate limits, alerts.
--
-- A lease is a row with a time at which it expires. Three row locks protect it:
--
--   take over  `for update`          conflicts with all of them
--   assert     `for key share`       until the end of the asserting transaction
--   renew      an ordinary update    does not conflict with `for key share`
--
-- So a lease changes hands only when no transaction that has asserted it is open.

-- Fencing tokens. Each is larger than all before it, for every kind of lease. Not cached: with a cache, tokens would
-- rise only within one session.
create sequence rota.tokens cache 1;

-- Leases on names. A lock is slot 0 of its name; the permits of a semaphore are the slots from 1. Rows are kept: a
-- free one has no instance. Renewals update the row in place (HOT): no column that changes with them is indexed.
create table rota.locks (
    name          text collate "C" not null,
    slot          integer not null,
    token         bigint not null,                      -- fencing token, replaced with every acquisition
    instance      uuid,                                 -- holder; null: free
    nonce         uuid,                                 -- of the call that acquired it, which may have to resend its
                                                        -- request
    host          text,
    pid           integer,
    label         text,                                 -- name of the holder for operators
    acquired      timestamptz,
    expires       timestamptz,
    renewals      integer not null default 0,
    max_held      float8,                               -- seconds after which an alert is raised
    awaited_since timestamptz,                          -- set by a waiting client that wants a notification of the
                                                        -- release
    primary key (name, slot)
) with (fillfactor = 50);

-- Leaders and their terms. If `expires` is null, an advisory lock of a database session holds the term; the term ends
-- with the session.
create table rota.leaders (
    name         text collate "C" primary key,
    term         bigint not null,                       -- rises by one with every election
    instance     uuid,                                  -- null: vacant
    host         text,
    pid          integer,
    label        text,                                  -- name of the leader for operators
    since        timestamptz,
    expires      timestamptz,
    session_lock integer,                               -- second key of the advisory lock
    elections    timestamptz[] not null default '{}'    -- times of the latest elections
) with (fillfactor = 50);

-- Instances that run services, or can take them over.
create table rota.instances (
    id        uuid primary key,
    host      text not null,
    pid       integer not null,
    label     text not null,                            -- name of the instance for operators
    version   text not null,
    started   timestamptz not null default rota.clock(),
    last_seen timestamptz not null default rota.clock(),
    expires   timestamptz not null,
    services  text[] not null,                          -- services it can run
    running   text[] not null default '{}'              -- services it runs
) with (fillfactor = 50);

-- Services: loops that run on one instance at a time.
create table rota.services (
    name      text collate "C" primary key,
    every     float8,                                   -- seconds from start to start; null: one endless call
    iteration bigint not null default 0,                -- number of the latest iteration
    started   timestamptz,
    failures  integer not null default 0,               -- consecutive failures
    retry_at  timestamptz                               -- earliest next start, after a failure
) with (fillfactor = 50);

-- Iterations of services, the latest thousand of each.
create table rota.iterations (
    service  text collate "C" not null,
    number   bigint not null,
    term     bigint not null,
    instance uuid not null,
    host     text not null,
    pid      integer not null,
    started  timestamptz not null default rota.clock(),
    ended    timestamptz,
    outcome  text,                                      -- succeeded, failed, stopped or lost; null: unknown
    error    json,
    primary key (service, number)
);

-- Results of calls that are made once per key.
create table rota.once_calls (
    key            text collate "C" primary key,
    token          bigint not null,                     -- fencing token
    instance       uuid not null,                       -- instance that makes the call, or made it
    nonce          uuid not null,
    host           text not null,
    pid            integer not null,
    label          text not null,                       -- name of the caller for operators
    started        timestamptz not null,
    expires        timestamptz not null,                -- until then it has finished, or another instance may take over
    finished       timestamptz,
    retained_until timestamptz not null,                -- the row may be deleted afterwards
    result         json,
    awaited_since  timestamptz                          -- set by a waiting client that wants a notification of the
                                                        -- result
) with (fillfactor = 70);
create index once_calls_retained_until on rota.once_calls (retained_until);

-- Rate limits, one row per name. `refilled_at` is the time at which the next permit would be due if no permits were
-- saved up.
create table rota.rate_limits (
    name             text collate "C" primary key,
    refilled_at      timestamptz not null,
    interval_seconds float8 not null,                   -- seconds between permits, at the latest use
    last_used        timestamptz not null               -- time of the latest use; detects a clock that was set back
) with (fillfactor = 50);

-- Alerts. At most one that is not cleared exists per kind and subject.
create table rota.alerts (
    id      bigint generated always as identity primary key,
    kind    text collate "C" not null,
    subject text collate "C" not null,
    message text not null,
    token   bigint,                                     -- token of the lease that the alert is about
    raised  timestamptz not null default rota.clock(),
    cleared timestamptz,
    host    text not null,
    pid     integer not null
);
create unique index alerts_open on rota.alerts (kind, subject) where cleared is null;

-- Actions of operators.
create table rota.audit (
    id       bigint generated always as identity primary key,
    at       timestamptz not null default rota.clock(),
    operator text not null,
    action   text not null,
    subject  text not null,
    detail   json not null default '{}'
);

-- Assert that the lock, or the permit, is held under this token. Until the caller's transaction ends, no other
-- instance can acquire it. Raises RT004 if it is no longer held under this token, which rolls the transaction back.
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

-- Assert the term of a leader in the same way. Raises RT005 if another term has begun or this one has expired.
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

-- Release a lock, or a permit, by force. A new token is drawn, so the holder's old token is refused from now on. The
-- action is written to `audit`. Returns the holder; null if the lock is free.
--
-- Waits at most two seconds for a transaction that has asserted the lock.
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
    values (release_lock.operator, 'release lock', release_lock.name || case when held.slot > 0 then ' permit '
            || held.slot else '' end,
            holder);
    perform pg_notify('rota.locks', release_lock.name);
    return holder;
end
$$;
