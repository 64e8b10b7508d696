-- Record the use of an access token, at most once a minute.
update rota.access_tokens
   set last_used = rota.clock()
 where id = %(id)s::text
   and (last_used is null or last_used < rota.clock() - interval '1 min')
