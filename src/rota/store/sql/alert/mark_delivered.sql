-- Record the channels that received an alert, and retry the remaining ones in `retry_seconds`; null if none remain. If
-- the alert was closed since `claim_deliveries` read it, deliver that change at once.
update rota.alerts
   set delivered_to = alerts.delivered_to || %(delivered)s::text[],
       deliver_at = case when alerts.cleared is distinct from %(cleared)s::timestamptz then rota.clock()
                   else rota.clock() + make_interval(secs => %(retry_seconds)s::float8) end,
       delivery_attempts = case when alerts.cleared is distinct from %(cleared)s::timestamptz then 0
                                else alerts.delivery_attempts end
 where alerts.id = %(id)s::bigint
