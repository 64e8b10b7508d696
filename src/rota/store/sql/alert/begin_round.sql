-- Take the next round of looking at the fleet, if the last one is long enough ago and nobody else is taking it: of all
-- who ask, one. Answers its number and what the last one has remembered, or nulls; the time; and whether somebody is
-- to be told of an alert. Waits for nobody.
--
-- Whoever took it may die of it: then the next one comes in its time. A clock that was put back starts a new one.
with free as materialized (
    select alert_rounds.name
      from rota.alert_rounds
     where alert_rounds.name = 'alerts'
       and (alert_rounds.at <= rota.clock() - make_interval(secs => %(interval)s::float8)
            or alert_rounds.at > rota.clock() + interval '5 seconds')
       for update skip locked
),
taken as (
    update rota.alert_rounds
       set number = alert_rounds.number + 1, at = rota.clock()
      from free
     where alert_rounds.name = free.name
    returning alert_rounds.number, alert_rounds.state
),
first as (
    insert into rota.alert_rounds (name, number, at)
    select 'alerts', 1, rota.clock()
     where not exists (select from rota.alert_rounds where alert_rounds.name = 'alerts')
    on conflict do nothing
    returning alert_rounds.number, alert_rounds.state
)
select ours.number, ours.state, rota.clock(),
       exists (select from rota.alerts where alerts.deliver_at <= rota.clock())
  from (select) as always
  left join (select * from taken union all select * from first) as ours on true
