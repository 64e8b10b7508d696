-- Return the sessions that block a backend.
select blocker.pid, coalesce(activity.application_name, '') as application, activity.usename::text as user,
       host(activity.client_addr) as address, activity.state,
       extract(epoch from rota.clock() - activity.xact_start)::float8 as open
  from unnest(pg_blocking_pids(%(pid)s::int)) as blocker (pid)
  left join pg_catalog.pg_stat_activity as activity on activity.pid = blocker.pid
