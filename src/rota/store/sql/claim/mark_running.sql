-- Note of a suspect that it runs, and whether alone. No row: it has been taken away.
update rota.claims
   set exclusive = %(exclusive)s::boolean
 where claims.id = %(claim)s::bigint
   and claims.worker = %(worker)s::bigint
   and %(job)s::bigint = any(claims.jobs)
returning claims.id
