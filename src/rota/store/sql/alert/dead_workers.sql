-- Return the workers that died within a day, latest first, at most 1,000. Leave out workers that died before an
-- operator closed the alert of their host.
select workers.id, workers.host, workers.pid, workers.queues, workers.last_beat
  from rota.workers
 where workers.state = 'dead'
   and workers.ended > rota.clock() - interval '1 day'
   and not exists (select
                     from rota.alerts
                    where alerts.kind = 'worker dead'
                      and alerts.subject = workers.host
                      and alerts.closed_by is not null
                      and alerts.cleared >= workers.ended)
 order by workers.ended desc
 limit 1000
