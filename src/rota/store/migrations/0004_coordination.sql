-- breaking: no
-- Coordination of instances: locks and semaphores, leaders, services, calls made once, rate limits.
--
-- A lease is a row with a time at which it expires. Three row locks protect it:
--
--   take over  `for update`          conflicts with all of them
--   assert     `for key share`       until the end of the asserting transaction
--   renew      an ordinary update    does not conflict with `for key share`
--
-- So a lease changes hands only when no transaction that has asserted it is open.

-- Not cached: with a cache, tokens would rise only within one session.
create sequence rota.tokens cache 1;
comment on sequence rota.tokens is
    'Fencing tokens of locks and of calls made once. Each token is larger than all before it, for every kind of '
    'lease.';

-- Locks and semaphores

-- Renewals update the row in place (HOT): no column that changes with them is indexed.
create table rota.locks (
    name          text collate "C" not null,
    slot          integer not null,
    token         bigint not null,
    instance      uuid,
    nonce         uuid,
    host          text,
    pid           integer,
    label         text,
    acquired      timestamptz,
    expires       timestamptz,
    renewals      integer not null default 0,
    max_held      float8,
    awaited_since timestamptz,
    primary key (name, slot)
) with (fillfactor = 50);
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
-- Finds the few locks that are held among many free ones. Acquiring and releasing maintain it; renewing does not.
create index locks_held on rota.locks (name, slot) where instance is not null;

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
comment on function rota.assert_lock is
    'Assert that the lock, or the permit, is held under this token. Until the caller''s transaction ends, no other '
    'instance can acquire it. Raises RT004 if it is no longer held under this token, which rolls the transaction '
    'back. Public and stable.';

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
comment on function rota.release_lock is
    'Release a lock, or a permit, by force. A new token is drawn, so the old token of the holder is refused from then '
    'on. The action is written to `audit`. Returns the holder; null if the lock is free. Waits at most two seconds '
    'for a transaction that has asserted the lock.';

-- Leaders

create table rota.leaders (
    name         text collate "C" primary key,
    term         bigint not null,
    instance     uuid,
    host         text,
    pid          integer,
    label        text,
    since        timestamptz,
    expires      timestamptz,
    session_lock integer,
    elections    timestamptz[] not null default '{}'
) with (fillfactor = 50);
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
comment on function rota.assert_term is
    'Assert that this is the current term of a leader. Until the caller''s transaction ends, no other term can begin. '
    'Raises RT005 if another term has begun or this one has expired, which rolls the transaction back. Public and '
    'stable.';

-- Services

create table rota.instances (
    id        uuid primary key,
    host      text not null,
    pid       integer not null,
    label     text not null,
    version   text not null,
    started   timestamptz not null default rota.clock(),
    last_seen timestamptz not null default rota.clock(),
    expires   timestamptz not null,
    services  text[] not null,
    running   text[] not null default '{}'
) with (fillfactor = 50);
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

create table rota.services (
    name      text collate "C" primary key,
    every     float8,
    iteration bigint not null default 0,
    started   timestamptz,
    failures  integer not null default 0,
    retry_at  timestamptz
) with (fillfactor = 50);
comment on table rota.services is 'Services: loops that run on one instance at a time.';
comment on column rota.services.name is 'Name of the service.';
comment on column rota.services.every is
    'Seconds from the start of an iteration to the start of the next; null: one endless call.';
comment on column rota.services.iteration is 'Number of the latest iteration.';
comment on column rota.services.started is 'Time at which the latest iteration started.';
comment on column rota.services.failures is 'Number of consecutive failures.';
comment on column rota.services.retry_at is 'Earliest start of the next iteration after a failure; null: no delay.';

create table rota.iterations (
    service  text collate "C" not null,
    number   bigint not null,
    term     bigint not null,
    instance uuid not null,
    host     text not null,
    pid      integer not null,
    started  timestamptz not null default rota.clock(),
    ended    timestamptz,
    outcome  text,
    error    json,
    primary key (service, number)
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

-- Calls made once

create table rota.once_calls (
    key            text collate "C" primary key,
    token          bigint not null,
    instance       uuid not null,
    nonce          uuid not null,
    host           text not null,
    pid            integer not null,
    label          text not null,
    started        timestamptz not null,
    expires        timestamptz not null,
    finished       timestamptz,
    retained_until timestamptz not null,
    result         json,
    awaited_since  timestamptz
) with (fillfactor = 70);
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
create index once_calls_retained_until on rota.once_calls (retained_until);

-- Rate limits

create table rota.rate_limits (
    name             text collate "C" primary key,
    refilled_at      timestamptz not null,
    interval_seconds float8 not null,
    last_used        timestamptz not null
) with (fillfactor = 50);
comment on table rota.rate_limits is 'Rate limits, one row per name.';
comment on column rota.rate_limits.name is 'Name of the rate limit.';
comment on column rota.rate_limits.refilled_at is
    'Time at which all permits are available again. Each permit used moves it forward by `interval_seconds`.';
comment on column rota.rate_limits.interval_seconds is 'Seconds between permits, at the latest use.';
comment on column rota.rate_limits.last_used is 'Time of the latest use. It detects a clock that was set back.';
