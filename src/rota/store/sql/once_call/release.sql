-- Let go of a call that came to nothing, or whose beginning nobody waits for any more: the next to come makes it. Answers
-- whether somebody waits to be told. No row: it is somebody else's, or was never begun.
delete from rota.once_calls
 where once_calls.key = %(key)s::text
   and once_calls.nonce = any(%(nonces)s::uuid[])
   and once_calls.finished is null
returning once_calls.awaited_since is not null
