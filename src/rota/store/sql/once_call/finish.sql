-- Keep what a call has come to. Answers whether somebody waits to be told. No row: somebody else has begun it since, so
-- this counts for nothing.
--
-- Its time may have run out: as long as nobody else has begun it there is no other result, and this one spares him the
-- call. To say it twice is no mistake. A few others that need not be kept any longer go with it, so that nobody has to
-- look after them.
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
gone as (
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
