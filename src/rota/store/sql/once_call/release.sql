-- Release a call that failed, or whose caller no longer waits for its begin: the next caller makes it. Returns true if
-- a client waits for a notification. No row: another caller has the call, or it was never begun.
delete from rota.once_calls
 where once_calls.key = %(key)s::text
   and once_calls.nonce = any(%(nonces)s::uuid[])
   and once_calls.finished is null
returning once_calls.awaited_since is not null
