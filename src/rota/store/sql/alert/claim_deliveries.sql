-- Claim alerts that are due for delivery, for `lease_seconds`. If the claiming instance does not record a result in
-- that time (`alert/mark_delivered`), another instance claims them. Return the alerts in their present state.
--
-- Does not wait: locked rows are skipped. An alert that was closed more than a day ago is not delivered any more.
with due as materialized (
    select alerts.id, alerts.cleared < rota.clock() - interval '1 day' as stale
      from rota.alerts
     where alerts.deliver_at <= rota.clock()
     order by alerts.deliver_at
     limit %(limit)s::int
       for update skip locked
),
taken as (
    update rota.alerts
       set deliver_at = case when due.stale then null
                             else rota.clock() + make_interval(secs => %(lease_seconds)s::float8) end,
           delivery_attempts = alerts.delivery_attempts + 1
      from due
     where alerts.id = due.id
    returning alerts.*
)
select taken.id, taken.kind, taken.subject, taken.message, taken.raised, taken.cleared, taken.host, taken.pid,
       taken.closed_by, taken.delivered_to, taken.delivery_attempts, rota.clock()
  from taken
 where taken.deliver_at is not null
 order by taken.id
