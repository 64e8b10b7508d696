-- What is kept of one token: whose it is, its digest, whether it is good, for how long, and whether its use is to be
-- noted again. No row: there is none.
select token.name, token.role, token.digest,
       case when token.revoked is not null then 'revoked' when token.expires <= rota.clock() then 'expired' else 'good' end,
       extract(epoch from token.expires - rota.clock())::float8,
       token.last_used is null or token.last_used < rota.clock() - interval '1 min'
  from rota.access_tokens as token
 where token.id = %(id)s::text
