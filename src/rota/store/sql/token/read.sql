-- Return one access token: name, role, digest, state, seconds until it expires, and true if its use is to be recorded
-- again. No row: there is no such token.
select token.name, token.role, token.digest,
       case when token.revoked is not null then 'revoked' when token.expires <= rota.clock() then 'expired'
       else 'active' end,
       extract(epoch from token.expires - rota.clock())::float8,
       token.last_used is null or token.last_used < rota.clock() - interval '1 min'
  from rota.access_tokens as token
 where token.id = %(id)s::text
