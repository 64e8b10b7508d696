-- Return closed alerts, latest first, before an id, with the operator that closed each, if any.
select alerts.id, alerts.kind, alerts.subject, alerts.message, alerts.raised, alerts.cleared, alerts.host, alerts.pid,
       null::timestamptz, null::text, alerts.closed_by
  from rota.alerts
 where alerts.cleared is not null
   and alerts.id < %(before)s::bigint
 order by alerts.id desc
 limit %(limit)s::int
