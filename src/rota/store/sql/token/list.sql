-- Return access tokens, newest first; expired and revoked ones only with `include_inactive`. Digests are not returned.
select token.id, token.name, token.role, token.created_by, token.created, token.expires, token.revoked, token.last_used,
       case when token.revoked is not null then 'revoked' when token.expires <= rota.clock() then 'expired'
       else 'active' end
  from rota.access_tokens as token
 where (%(id)s::text is null or token.id = %(id)s::text)
   and (%(include_inactive)s::boolean or (token.revoked is null and (token.expires is null
                                                                     or token.expires > rota.clock())))
 order by token.created desc, token.id
 limit %(limit)s::int
