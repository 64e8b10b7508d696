-- Take the next round of looking at the fleet, if the last one is long enough ago and nobody else is taking it: of all
-- who ask, one. Answers its number and what the last one has remembered, or nulls; the time; and whether somebody is
-- to be told of an alert. Waits for nobody.
--
-- Whoever took it may die of it: then the next one comes in its time. A clock that was put back starts a new one.
with free as materialized (
    select rounds.name
      from rota.rounds
     where rounds.name = 'alerts'
       and (rounds.at <= rota.clock() - make_interval(secs => %(every)s::float8)
            or rounds.at > rota.clock() + interval '5 seconds')
       for update skip locked
),
taken as (
    update rota.rounds
       set number = rounds.number + 1, at = rota.clock()
      from free
     where rounds.name = free.name
    returning rounds.number, rounds.memory
),
first as (
    insert into rota.rounds (name, number, at)
    select 'alerts', 1, rota.clock()
     where not exists (select from rota.rounds where rounds.name = 'alerts')
    on conflict do nothing
    returning rounds.number, rounds.memory
)
select ours.number, ours.memory, rota.clock(),
       exists (select from rota.alerts where alerts.tell <= rota.clock())
  from (select) as always
  left join (select * from taken union all select * from first) as ours on true
