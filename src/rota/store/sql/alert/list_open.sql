-- Return the open alerts of these kinds.
select alerts.id, alerts.kind, alerts.subject, alerts.message, alerts.calm_since
  from rota.alerts
 where alerts.cleared is null
   and alerts.kind = any(%(kinds)s::text[])
