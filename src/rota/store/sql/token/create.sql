-- Make a token, known by its digest from now on, and write down who did. Answers it as it is listed.
with made as (
    insert into rota.access_tokens (id, name, role, digest, created_by, expires)
    values (%(id)s::text, %(name)s::text, %(role)s::text, %(digest)s::bytea, %(operator)s::text,
            rota.clock() + %(lifetime)s::interval)
    returning id, name, role, created_by, created, expires, revoked, last_used
), noted as (
    insert into rota.audit (operator, action, subject, detail)
    select %(operator)s::text, 'create token', made.id,
           json_build_object('name', made.name, 'role', made.role, 'expires', made.expires)
      from made
)
select made.id, made.name, made.role, made.created_by, made.created, made.expires, made.revoked, made.last_used, 'good'
  from made
