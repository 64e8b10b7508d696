-- Make a token, known by its digest from now on, and write down who did. Answers it as it is listed.
with made as (
    insert into rota.access_tokens (id, name, role, digest, maker, expires)
    values (%(id)s::text, %(name)s::text, %(role)s::text, %(digest)s::bytea, %(who)s::text,
            rota.clock() + %(lifetime)s::interval)
    returning id, name, role, maker, created, expires, revoked, used
), noted as (
    insert into rota.audit (who, action, subject, detail)
    select %(who)s::text, 'create token', made.id,
           json_build_object('name', made.name, 'role', made.role, 'expires', made.expires)
      from made
)
select made.id, made.name, made.role, made.maker, made.created, made.expires, made.revoked, made.used, 'good'
  from made
