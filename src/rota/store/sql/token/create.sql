-- Create an access token, stored as a digest, and write an audit row. Returns it in the form of `token/list`.
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
select made.id, made.name, made.role, made.created_by, made.created, made.expires, made.revoked, made.last_used,
       'active'
  from made
