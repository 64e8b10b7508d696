-- How many alerts of each kind are open, and of how many somebody has said that he sees to them.
select alerts.kind, count(*), count(*) filter (where alerts.acknowledged_until > rota.clock())
  from rota.alerts
 where alerts.cleared is null
 group by alerts.kind
