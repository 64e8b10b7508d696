-- Go on with calls for as long again. Answers, for each that was named, whether it is still ours (null: somebody has its
-- row locked, ask again).
--
-- What has run out is not revived, though nobody may have begun it since. Nothing is joined to the table: nobody knows
-- how many there are, and the one good way is to look each up.
with seen as materialized (
    select once_calls.token, once_calls.expires > rota.clock() as good
      from rota.once_calls
     where once_calls.key = any(%(keys)s::text[])
       and once_calls.token = any(%(tokens)s::bigint[])
),
mine as materialized (
    select once_calls.token
      from rota.once_calls
     where once_calls.key = any(%(keys)s::text[])
       and once_calls.token = any(%(tokens)s::bigint[])
       and once_calls.expires > rota.clock()
       for no key update skip locked
),
kept as (
    update rota.once_calls
       set expires = rota.clock()
                     + make_interval(secs => (%(ttls)s::float8[])[array_position(%(tokens)s::bigint[], once_calls.token)])
     where once_calls.key = any(%(keys)s::text[])
       and once_calls.token = any(array(select mine.token from mine))
    returning once_calls.token
)
select given.token,
       case when kept.token is not null then true
            when seen.good then null
            else false
       end
  from unnest(%(tokens)s::bigint[]) as given (token)
  left join kept on kept.token = given.token
  left join seen on seen.token = given.token
