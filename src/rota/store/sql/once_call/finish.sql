-- Store the result of a call. Returns true if a client waits for a notification. No row: another caller has begun the
-- call since, so this result is discarded.
--
-- The lease may have expired: as long as no other caller has begun, there is no other result, and this one saves a
-- second call. A repeated call of this statement is correct. It also deletes up to ten results that need not be
-- retained any more, so that no separate cleanup is necessary.
with old as materialized (
    select once_calls.key
      from rota.once_calls
     where once_calls.retained_until <= rota.clock()
       and (once_calls.finished is not null or once_calls.expires <= rota.clock())
       and once_calls.key <> %(key)s::text
     order by once_calls.retained_until
     limit 10
       for update skip locked
),
deleted as (
    delete from rota.once_calls
     using old
     where once_calls.key = old.key
),
mine as materialized (
    select once_calls.awaited_since
      from rota.once_calls
     where once_calls.key = %(key)s::text
       and once_calls.token = %(token)s::bigint
       for no key update
)
update rota.once_calls
   set result = %(result)s::json, finished = coalesce(once_calls.finished, rota.clock()), awaited_since = null,
       retained_until = coalesce(rota.clock() + make_interval(secs => %(retention)s::float8), 'infinity')
  from mine
 where once_calls.key = %(key)s::text
   and once_calls.token = %(token)s::bigint
returning mine.awaited_since is not null
