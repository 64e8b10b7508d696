-- Note what has been told of an alert, and in how many seconds to try the rest; null: there is none. If it was closed
-- meanwhile, that is to be told at once.
update rota.alerts
   set told = alerts.told || %(told)s::text[],
       tell = case when alerts.cleared is distinct from %(cleared)s::timestamptz then rota.clock()
                   else rota.clock() + make_interval(secs => %(pause)s::float8) end,
       tries = case when alerts.cleared is distinct from %(cleared)s::timestamptz then 0 else alerts.tries end
 where alerts.id = %(id)s::bigint
