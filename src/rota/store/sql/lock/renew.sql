-- Renew locks and permits for their full lease time. Returns for each token: true if it is still held, false if it is
-- lost, null if its row is locked (resend); and true if another instance has the same token, which is a bug.
--
-- An expired lock is not revived, even if it is still free: its holder has already been notified of the loss. A row
-- that another transaction keeps locked is skipped, so that it does not delay the renewal of all other locks.
--
-- No join with the table: the number of rows is unknown to the planner, and one index look-up per lock is the best
-- plan.
with seen as materialized (
    select locks.token, locks.instance = %(instance)s::uuid as mine, locks.expires > rota.clock() as good
      from rota.locks
     where locks.name = any(%(names)s::text[])
       and locks.token = any(%(tokens)s::bigint[])
),
mine as materialized (
    select locks.token
      from rota.locks
     where locks.name = any(%(names)s::text[])
       and locks.token = any(%(tokens)s::bigint[])
       and locks.instance = %(instance)s::uuid
       and locks.expires > rota.clock()
       for no key update skip locked
),
kept as (
    update rota.locks
       set expires = rota.clock()
                     + make_interval(secs => (%(ttls)s::float8[])[array_position(%(tokens)s::bigint[], locks.token)]),
           renewals = locks.renewals + 1
     where locks.name = any(%(names)s::text[])
       and locks.token = any(array(select mine.token from mine))
    returning locks.token
)
select given.token,
       case when kept.token is not null then true
            when seen.mine and seen.good then null
            else false
       end,
       coalesce(not seen.mine, false)
  from unnest(%(tokens)s::bigint[]) as given (token)
  left join kept on kept.token = given.token
  left join seen on seen.token = given.token
