-- Renew the leases of calls for their full time. Returns for each token: true if it is still held, false if it is
-- lost, null if its row is locked (resend).
--
-- An expired call is not revived, even if no other caller has begun it. No join with the table: the number of rows is
-- unknown to the planner, and one index look-up per call is the best plan.
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
                     + make_interval(secs => (%(ttls)s::float8[])[array_position(%(tokens)s::bigint[],
                     once_calls.token)])
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
