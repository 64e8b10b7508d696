-- Record that a suspect runs, and whether exclusively. No row: the job was taken back.
update rota.claims
   set exclusive = %(exclusive)s::boolean
 where claims.id = %(claim)s::bigint
   and claims.worker = %(worker)s::bigint
   and %(job)s::bigint = any(claims.jobs)
returning claims.id
