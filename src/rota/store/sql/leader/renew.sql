-- Renew the leases of terms. Return for each term given true if it was renewed, false if it has ended, and null if
-- another transaction has locked its row (retry).
--
-- An expired lease is not renewed, even if no other instance was elected since: the former leader has stopped leading.
-- Locked rows are skipped, because waiting for one of them could let the other leases expire.
with given as materialized (
    select * from unnest(%(names)s::text[], %(terms)s::bigint[], %(leases)s::float8[]) as given (name, term, lease)
),
mine as materialized (
    select leaders.name, given.lease
      from given
      join rota.leaders
        on leaders.name = given.name
       and leaders.term = given.term
       and leaders.instance = %(instance)s::uuid
       and leaders.expires > rota.clock()
       for no key update of leaders skip locked
),
kept as (
    update rota.leaders
       set expires = rota.clock() + make_interval(secs => mine.lease)
      from mine
     where leaders.name = mine.name
    returning leaders.name
)
select given.name,
       case when given.name in (select kept.name from kept) then true
            when leaders.expires > rota.clock() then null
            else false
       end
  from given
  left join rota.leaders
    on leaders.name = given.name
   and leaders.term = given.term
   and leaders.instance = %(instance)s::uuid
