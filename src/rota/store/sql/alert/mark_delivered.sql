-- Note what has been told of an alert, and in how many seconds to try the rest; null: there is none. If it was closed
-- meanwhile, that is to be told at once.
update rota.alerts
   set delivered_to = alerts.delivered_to || %(delivered)s::text[],
       deliver_at = case when alerts.cleared is distinct from %(cleared)s::timestamptz then rota.clock()
                   else rota.clock() + make_interval(secs => %(retry_seconds)s::float8) end,
       delivery_attempts = case when alerts.cleared is distinct from %(cleared)s::timestamptz then 0 else alerts.delivery_attempts end
 where alerts.id = %(id)s::bigint
