-- Begin a call that is made once for its key, unless its result is there, or somebody is about it; then say which.
-- Waits for nobody but whoever is just making its row, in a statement like this one.
--
-- A result is there until it need not be kept any longer, and somebody is about it until his time has run out. What this
-- very call began already (it asked under an `earlier` nonce, and the answer was lost on the way) it begins again. The
-- token is drawn when the row is locked, so it is larger than that of whoever was about it before. Who is going to wait
-- says so on the row: `asked` is whether it is known. `raced` is that somebody else was a moment faster: the answer is
-- about what was before, and the next one will be about him.
with known as materialized (
    select onces.result
      from rota.onces
     where onces.key = %(key)s::text
       and onces.finished is not null
       and onces.until > rota.clock()
),
free as materialized (
    select onces.key
      from rota.onces
     where onces.key = %(key)s::text
       and case when onces.finished is null
                then onces.expires <= rota.clock() or onces.nonce = any(%(earlier)s::uuid[])
                else onces.until <= rota.clock()
           end
       for update skip locked
),
taken as (
    update rota.onces
       set token = nextval('rota.tokens'), instance = %(instance)s::uuid, nonce = %(nonce)s::uuid, host = %(host)s,
           pid = %(pid)s, label = %(label)s, began = rota.clock(),
           expires = rota.clock() + make_interval(secs => %(ttl)s::float8), finished = null,
           until = rota.clock() + make_interval(days => 1, secs => %(ttl)s::float8), result = null, wanted = null
      from free
     where onces.key = free.key
    returning onces.token
),
made as (
    insert into rota.onces (key, token, instance, nonce, host, pid, label, began, expires, until)
    select %(key)s, nextval('rota.tokens'), %(instance)s::uuid, %(nonce)s::uuid, %(host)s, %(pid)s, %(label)s, rota.clock(),
           rota.clock() + make_interval(secs => %(ttl)s::float8),
           rota.clock() + make_interval(days => 1, secs => %(ttl)s::float8)
     where not exists (select from rota.onces where onces.key = %(key)s::text)
    on conflict do nothing
    returning onces.token
),
held as materialized (
    select onces.key
      from rota.onces
     where %(wait)s::boolean
       and onces.key = %(key)s::text
       and onces.finished is null
       and onces.expires > rota.clock()
       and onces.wanted is null
       and not exists (select from taken)
       for no key update skip locked
),
asked as (
    update rota.onces
       set wanted = rota.clock()
      from held
     where onces.key = held.key
),
got as (
    select taken.token from taken
     union all
    select made.token from made
)
select got.token, known.result is not null, known.result,
       got.token is null and known.result is null and caller.pid is null,
       exists (select from held) or coalesce(caller.wanted, false),
       caller.host, caller.pid, caller.label, caller.since, caller.left
  from (select) as always
  left join got on true
  left join known on true
  left join lateral (
       select onces.host, onces.pid, onces.label, onces.wanted is not null as wanted,
              extract(epoch from rota.clock() - onces.began)::float8 as since,
              extract(epoch from onces.expires - rota.clock())::float8 as left
         from rota.onces
        where got.token is null
          and onces.key = %(key)s::text
          and onces.finished is null
          and onces.expires > rota.clock()
       ) as caller on true
