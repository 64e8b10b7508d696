-- Keep what a call has come to. Answers whether somebody waits to be told. No row: somebody else has begun it since, so
-- this counts for nothing.
--
-- Its time may have run out: as long as nobody else has begun it there is no other result, and this one spares him the
-- call. To say it twice is no mistake. A few others that need not be kept any longer go with it, so that nobody has to
-- look after them.
with old as materialized (
    select onces.key
      from rota.onces
     where onces.until <= rota.clock()
       and (onces.finished is not null or onces.expires <= rota.clock())
       and onces.key <> %(key)s::text
     order by onces.until
     limit 10
       for update skip locked
),
gone as (
    delete from rota.onces
     using old
     where onces.key = old.key
),
mine as materialized (
    select onces.wanted
      from rota.onces
     where onces.key = %(key)s::text
       and onces.token = %(token)s::bigint
       for no key update
)
update rota.onces
   set result = %(result)s::json, finished = coalesce(onces.finished, rota.clock()), wanted = null,
       until = coalesce(rota.clock() + make_interval(secs => %(keep)s::float8), 'infinity')
  from mine
 where onces.key = %(key)s::text
   and onces.token = %(token)s::bigint
returning mine.wanted is not null
