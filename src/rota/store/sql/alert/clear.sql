-- Close the open alerts with these kinds, subjects and lock tokens. Return those closed. Skip locked rows.
with over as materialized (
    select alerts.id
      from unnest(%(kinds)s::text[], %(subjects)s::text[], %(tokens)s::bigint[]) as given (kind, subject, token)
      join rota.alerts
        on alerts.kind = given.kind
       and alerts.subject = given.subject
       and alerts.token is not distinct from given.token
       and alerts.cleared is null
       for update of alerts skip locked
)
update rota.alerts
   set cleared = rota.clock(), deliver_at = rota.clock(), delivery_attempts = 0
  from over
 where alerts.id = over.id
returning alerts.kind, alerts.subject
