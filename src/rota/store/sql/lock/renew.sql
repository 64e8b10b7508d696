-- Hold on to locks and permits for as long again. Answers, for each that was named, whether it is still held (null:
-- somebody has its row locked, ask again), and whether somebody else has it under the very same token, which cannot be.
--
-- What has run out is not revived, though nobody may have taken it since: its holder has been told that it is lost.
-- One whose row somebody keeps locked, by hand, is passed over, so that it does not cost us all the others.
--
-- Nothing is joined to the table: nobody knows how many they are, and the one good way is to look each up.
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
