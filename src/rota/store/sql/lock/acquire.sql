-- Acquire a lock, or the first free permit of a semaphore; otherwise return its holder.
--
--   free       without a holder, or expired; not if a transaction has asserted it: its row cannot be locked then
--   resent     the call may have acquired it before under an `earlier` nonce, with its answer lost: it acquires it
--              again. Each request has its own nonce, so that a late one cannot take the lock from this one
--   token      drawn while the row is locked, so it is larger than the token of the previous holder
--   waiting    with `wait`, the statement sets `awaited_since` on all held rows. The third column is true if it is
--              set on every one of them
--   raced      the fourth column: another instance has just inserted the row, which this snapshot cannot see; resend
--   locks      locked rows are skipped. The statement waits only for a concurrent insert of the same row
with free as materialized (
    select locks.slot
      from rota.locks
     where locks.name = %(name)s::text
       and locks.slot between %(first_permit)s::int and %(last_permit)s::int
       and (locks.instance is null or locks.expires <= rota.clock() or locks.nonce = any(%(earlier_nonces)s::uuid[]))
     order by locks.nonce = any(%(earlier_nonces)s::uuid[]) is not true, locks.slot
     limit 1
       for update skip locked
),
taken as (
    update rota.locks
       set token = nextval('rota.tokens'), instance = %(instance)s::uuid, nonce = %(nonce)s::uuid, host = %(host)s,
           pid = %(pid)s, label = %(label)s, acquired = rota.clock(),
           expires = rota.clock() + make_interval(secs => %(ttl)s::float8), renewals = 0,
           max_held = %(max_held)s::float8, awaited_since = null
      from free
     where locks.name = %(name)s::text
       and locks.slot = free.slot
    returning locks.slot, locks.token
),
fresh as materialized (
    select number as slot
      from generate_series(%(first_permit)s::int, %(last_permit)s::int) as number
     where not exists (select from taken)
       and not exists (select from rota.locks where locks.name = %(name)s::text and locks.slot = number)
     order by random()
     limit 1
),
made as (
    insert into rota.locks (name, slot, token, instance, nonce, host, pid, label, acquired, expires, max_held)
    select %(name)s, fresh.slot, nextval('rota.tokens'), %(instance)s::uuid, %(nonce)s::uuid, %(host)s, %(pid)s,
           %(label)s, rota.clock(), rota.clock() + make_interval(secs => %(ttl)s::float8), %(max_held)s::float8
      from fresh
    on conflict do nothing
    returning locks.slot, locks.token
),
held as materialized (
    select locks.slot
      from rota.locks
     where %(wait)s::boolean
       and not exists (select from taken)
       and not exists (select from made)
       and locks.name = %(name)s::text
       and locks.slot between %(first_permit)s::int and %(last_permit)s::int
       and locks.instance is not null
       and locks.expires > rota.clock()
       and locks.awaited_since is null
     order by locks.slot
       for no key update skip locked
),
asked as (
    update rota.locks
       set awaited_since = rota.clock()
      from held
     where locks.name = %(name)s::text
       and locks.slot = held.slot
),
got as (
    select taken.slot, taken.token from taken
     union all
    select made.slot, made.token from made
)
select got.slot, got.token, (select count(*) from held) + known.many = %(last_permit)s::int - %(first_permit)s::int + 1,
       got.token is null and exists (select from fresh),
       holder.instance, holder.host, holder.pid, holder.label, holder.token, holder.since, holder.left
  from (select count(*) as many
          from rota.locks
         where %(wait)s::boolean
           and locks.name = %(name)s::text
           and locks.slot between %(first_permit)s::int and %(last_permit)s::int
           and locks.instance is not null
           and locks.expires > rota.clock()
           and locks.awaited_since is not null) as known
  left join got on true
  left join lateral (
       select locks.instance, locks.host, locks.pid, locks.label, locks.token,
              extract(epoch from rota.clock() - locks.acquired)::float8 as since,
              extract(epoch from locks.expires - rota.clock())::float8 as left
         from rota.locks
        where got.token is null
          and locks.name = %(name)s::text
          and locks.slot between %(first_permit)s::int and %(last_permit)s::int
          and locks.instance is not null
        order by locks.expires
        limit 1
       ) as holder on true
