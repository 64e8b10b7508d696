-- Write the decision of a round, unless a later round has begun: open alerts, at most one for each kind and subject;
-- update messages; set `calm_since` on alerts with a condition that has ended; close alerts; store state for the next
-- round. Return the opened alerts (true) and the closed ones (false).
--
-- Locks the row of the round: no later round begins before this transaction ends.
with ours as materialized (
    select alert_rounds.name
      from rota.alert_rounds
     where alert_rounds.name = 'alerts'
       and alert_rounds.number = %(round)s::bigint
       for update
),
raised as (
    insert into rota.alerts (kind, subject, message, host, pid)
    select given.kind, given.subject, given.message, %(host)s, %(pid)s::int
      from unnest(%(kinds)s::text[], %(subjects)s::text[], %(messages)s::text[]) as given (kind, subject, message)
     where exists (select from ours)
    on conflict (kind, subject) where cleared is null do nothing
    returning alerts.kind, alerts.subject, alerts.message
),
said as (
    update rota.alerts
       set message = given.message, calm_since = null
      from unnest(%(updated_ids)s::bigint[], %(updated_messages)s::text[]) as given (id, message)
     where alerts.id = given.id
       and alerts.cleared is null
       and exists (select from ours)
),
calmed as (
    update rota.alerts
       set calm_since = rota.clock()
     where alerts.id = any(%(calm_ids)s::bigint[])
       and alerts.cleared is null
       and exists (select from ours)
),
closed as (
    update rota.alerts
       set cleared = rota.clock(), deliver_at = rota.clock(), delivery_attempts = 0
     where alerts.id = any(%(closed_ids)s::bigint[])
       and alerts.cleared is null
       and exists (select from ours)
    returning alerts.kind, alerts.subject, alerts.message
),
remembered as (
    update rota.alert_rounds
       set state = %(memory)s::json
      from ours
     where alert_rounds.name = ours.name
)
select true, raised.kind, raised.subject, raised.message from raised
 union all
select false, closed.kind, closed.subject, closed.message from closed
