-- Return the usage of the notification queue, which all databases share, and the session with the oldest transaction
-- that may keep the queue from being emptied.
select pg_notification_queue_usage(), oldest.pid, oldest.application_name,
       extract(epoch from clock_timestamp() - oldest.xact_start)::float8
  from (select) as always
  left join (select activity.pid, activity.application_name, activity.xact_start
               from pg_catalog.pg_stat_activity as activity
              where activity.pid <> pg_backend_pid()
                and activity.backend_type = 'client backend'
                and activity.xact_start is not null
              order by activity.xact_start
              limit 1) as oldest on true
