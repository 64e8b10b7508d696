-- Revoke an access token and write an audit row. Returns the token; no row if it does not exist or was revoked before.
with token as (
    update rota.access_tokens
       set revoked = rota.clock()
     where id = %(id)s::text
       and revoked is null
    returning id, name, role, created_by, created, expires, revoked, last_used
), noted as (
    insert into rota.audit (operator, action, subject, detail)
    select %(operator)s::text, 'revoke token', token.id, json_build_object('name', token.name, 'role', token.role)
      from token
)
select token.id, token.name, token.role, token.created_by, token.created, token.expires, token.revoked, token.last_used,
       'revoked'
  from token
