-- Let go of what a call has taken whose answer nobody waits for any more.
update rota.locks
   set instance = null, awaited_since = null
 where locks.name = %(name)s::text
   and locks.nonce = any(%(nonces)s::uuid[])
   and locks.instance = %(instance)s::uuid
