-- Return for each kind the number of open alerts and how many of them are acknowledged.
select alerts.kind, count(*), count(*) filter (where alerts.acknowledged_until > rota.clock())
  from rota.alerts
 where alerts.cleared is null
 group by alerts.kind
