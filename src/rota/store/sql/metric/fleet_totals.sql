-- Return totals of the whole system as one JSON document. The number of figures and the cost are bounded.
select json_build_object(
       'held', (select coalesce(sum(cardinality(claims.jobs)), 0) from rota.claims),
       'sleeping', (select count(*) from (select from rota.sleeping limit 100000) as few),
       'quarantined', (select count(*) from (select from rota.quarantine limit 10000) as few),
       'workers', (select coalesce(json_object_agg(there.state, there.count), '{}')
                     from (select case when workers.state in ('active', 'draining')
                                        and workers.last_beat < rota.clock()
                                            - make_interval(secs => %(dead_after)s::float8)
                                       then 'silent' else workers.state::text end as state, count(*) as count
                             from rota.workers
                            where workers.state <> 'stopped'
                            group by 1) as there),
       'running', (select coalesce(sum(workers.running), 0)
                     from rota.workers
                    where workers.state in ('active', 'draining')),
       'concurrency', (select coalesce(sum(workers.capacity), 0) from rota.workers where workers.state = 'active'),
       'leaders', (select coalesce(json_object_agg(few.name, few.term), '{}')
                     from (select leaders.name, leaders.term from rota.leaders order by leaders.name limit 100) as few),
       'schedule_late_seconds', greatest((select greatest(date_part('epoch', rota.clock() - schedules.due), 0)
                              from rota.schedules
                             where schedules.state = 'active'
                             order by schedules.due
                             limit 1),
                           -- A postponed schedule: `due` was moved, `next` still has the time of the tick.
                           (select date_part('epoch', rota.clock() - schedules.next)
                              from rota.schedules
                             where schedules.state = 'active'
                               and schedules.reason is not null
                             order by schedules.next
                             limit 1)),
       'paused_queues', (select coalesce(json_agg(few.queue), '[]')
                    from (select pauses.queue from rota.pauses order by pauses.queue limit 100) as few),
       'notify_queue_usage', pg_catalog.pg_notification_queue_usage(),
       'alerts', (select coalesce(json_object_agg(open.kind, open.count), '{}')
                    from (select alerts.kind, count(*) as count
                            from rota.alerts
                           where alerts.cleared is null
                           group by alerts.kind
                           order by alerts.kind
                           limit 100) as open))::text
