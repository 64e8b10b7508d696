-- Hold on to terms that are leases for as long again. Answers, for each that was named, whether it still stands (null:
-- somebody has its row locked, ask again).
--
-- What has run out is not revived, though nobody may have been elected since: who led has stopped to. One whose row
-- somebody keeps locked, by hand, is passed over, so that it does not cost us all the others.
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
