-- Begin the next round of alert evaluation, if the last round began at least `interval` seconds ago. Of several
-- instances that ask at the same time, one begins it. Return the number of the round and the state that the last round
-- stored, or nulls; the time; and true if an alert is due for delivery.
--
-- Does not wait: a row that another transaction has locked is skipped. If the instance dies during its round, the next
-- round begins at its usual time. If the clock was set back by more than 5 seconds, a round begins at once.
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
