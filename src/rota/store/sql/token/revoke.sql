-- Revoke an access token and write an audit row. Returns the token; no row if it does not exist or was revoked before.
with gone as (
    update rota.access_tokens
       set revoked = rota.clock()
     where id = %(id)s::text
       and revoked is null
    returning id, name, role, created_by, created, expires, revoked, last_used
), noted as (
    insert into rota.audit (operator, action, subject, detail)
    select %(operator)s::text, 'revoke token', gone.id, json_build_object('name', gone.name, 'role', gone.role)
      from gone
)
select gone.id, gone.name, gone.role, gone.created_by, gone.created, gone.expires, gone.revoked, gone.last_used,
       'revoked'
  from gone
