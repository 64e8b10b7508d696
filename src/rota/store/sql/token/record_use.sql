-- Note that a token is in use, at most once a minute however often it is and by however many.
update rota.access_tokens
   set last_used = rota.clock()
 where id = %(id)s::text
   and (last_used is null or last_used < rota.clock() - interval '1 min')
