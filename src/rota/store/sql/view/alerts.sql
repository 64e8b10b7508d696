-- Alerts: those that are open, the newest first; or also those that are over, after them.
select alerts.id, alerts.kind, alerts.subject, alerts.message, alerts.raised, alerts.cleared, alerts.host, alerts.pid
  from rota.alerts
 where %(over)s::boolean or alerts.cleared is null
 order by alerts.cleared is not null, alerts.id desc
 limit %(limit)s::int
