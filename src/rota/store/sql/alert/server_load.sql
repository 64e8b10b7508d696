-- Return the oldest transaction of this database that prevents vacuum from removing dead rows: its age in seconds and
-- its session, as far as this role may see; and the usage of the notification queue, 0 to 1.
select extract(epoch from rota.clock() - oldest.xact_start)::float8, oldest.pid, oldest.application_name,
       oldest.state, pg_notification_queue_usage()
  from (select) as always
  left join (select activity.xact_start, activity.pid, activity.application_name, activity.state
               from pg_catalog.pg_stat_activity as activity
              where activity.datname = current_database()
                and activity.backend_type = 'client backend'
                and activity.pid <> pg_backend_pid()
                and activity.xact_start is not null
                and (activity.backend_xmin is not null or activity.backend_xid is not null)
              order by activity.xact_start
              limit 1) as oldest on true
