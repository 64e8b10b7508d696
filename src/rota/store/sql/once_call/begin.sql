-- Begin a call that is made once per key; or return its result, or the caller that is making it.
--
--   result     valid until `retained_until`
--   running    another caller makes the call, until its lease expires
--   resent     the call may have begun before under an `earlier` nonce, with its answer lost: it begins again
--   token      drawn while the row is locked, so it is larger than the token of the previous caller
--   waiting    with `wait`, the statement sets `awaited_since` on the row. The fifth column is true if it is set
--   raced      the fourth column: another caller was faster, and this snapshot cannot see its row; resend
--   locks      a locked row is skipped. The statement waits only for a concurrent insert of the same row
with known as materialized (
    select once_calls.result
      from rota.once_calls
     where once_calls.key = %(key)s::text
       and once_calls.finished is not null
       and once_calls.retained_until > rota.clock()
),
free as materialized (
    select once_calls.key
      from rota.once_calls
     where once_calls.key = %(key)s::text
       and case when once_calls.finished is null
                then once_calls.expires <= rota.clock() or once_calls.nonce = any(%(earlier_nonces)s::uuid[])
                else once_calls.retained_until <= rota.clock()
           end
       for update skip locked
),
taken as (
    update rota.once_calls
       set token = nextval('rota.tokens'), instance = %(instance)s::uuid, nonce = %(nonce)s::uuid, host = %(host)s,
           pid = %(pid)s, label = %(label)s, started = rota.clock(),
           expires = rota.clock() + make_interval(secs => %(ttl)s::float8), finished = null,
           retained_until = rota.clock() + make_interval(days => 1, secs => %(ttl)s::float8), result = null,
           awaited_since = null
      from free
     where once_calls.key = free.key
    returning once_calls.token
),
made as (
    insert into rota.once_calls (key, token, instance, nonce, host, pid, label, started, expires, retained_until)
    select %(key)s, nextval('rota.tokens'), %(instance)s::uuid, %(nonce)s::uuid, %(host)s, %(pid)s, %(label)s,
           rota.clock(),
           rota.clock() + make_interval(secs => %(ttl)s::float8),
           rota.clock() + make_interval(days => 1, secs => %(ttl)s::float8)
     where not exists (select from rota.once_calls where once_calls.key = %(key)s::text)
    on conflict do nothing
    returning once_calls.token
),
held as materialized (
    select once_calls.key
      from rota.once_calls
     where %(wait)s::boolean
       and once_calls.key = %(key)s::text
       and once_calls.finished is null
       and once_calls.expires > rota.clock()
       and once_calls.awaited_since is null
       and not exists (select from taken)
       for no key update skip locked
),
asked as (
    update rota.once_calls
       set awaited_since = rota.clock()
      from held
     where once_calls.key = held.key
),
got as (
    select taken.token from taken
     union all
    select made.token from made
)
select got.token, known.result is not null, known.result,
       got.token is null and known.result is null and caller.pid is null,
       exists (select from held) or coalesce(caller.awaited_since, false),
       caller.host, caller.pid, caller.label, caller.since, caller.left
  from (select) as always
  left join got on true
  left join known on true
  left join lateral (
       select once_calls.host, once_calls.pid, once_calls.label, once_calls.awaited_since is not null as awaited_since,
              extract(epoch from rota.clock() - once_calls.started)::float8 as since,
              extract(epoch from once_calls.expires - rota.clock())::float8 as left
         from rota.once_calls
        where got.token is null
          and once_calls.key = %(key)s::text
          and once_calls.finished is null
          and once_calls.expires > rota.clock()
       ) as caller on true
