-- Release locks that a call has acquired although its caller no longer waits for the answer.
update rota.locks
   set instance = null, awaited_since = null
 where locks.name = %(name)s::text
   and locks.nonce = any(%(nonces)s::uuid[])
   and locks.instance = %(instance)s::uuid
