-- Have a token open nothing from now on, and write down who did. Answers it; no row: there is none, or it was revoked
-- before.
with gone as (
    update rota.access_tokens
       set revoked = rota.clock()
     where id = %(id)s::text
       and revoked is null
    returning id, name, role, maker, created, expires, revoked, used
), noted as (
    insert into rota.audit (who, action, subject, detail)
    select %(who)s::text, 'revoke token', gone.id, json_build_object('name', gone.name, 'role', gone.role)
      from gone
)
select gone.id, gone.name, gone.role, gone.maker, gone.created, gone.expires, gone.revoked, gone.used, 'revoked'
  from gone
