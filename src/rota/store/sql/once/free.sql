-- Let go of a call that came to nothing, or whose beginning nobody waits for any more: the next to come makes it. Answers
-- whether somebody waits to be told. No row: it is somebody else's, or was never begun.
delete from rota.onces
 where onces.key = %(key)s::text
   and onces.nonce = any(%(nonces)s::uuid[])
   and onces.finished is null
returning onces.wanted is not null
