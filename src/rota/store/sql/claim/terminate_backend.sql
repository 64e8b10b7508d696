-- End a transaction of ours whose connection was lost and whose server has not noticed: it would keep its claim from
-- everybody. Only that transaction: the process may be about something else by now.
select pg_terminate_backend(activity.pid)
  from pg_catalog.pg_stat_activity as activity
 where activity.pid = %(pid)s::int
   and activity.xact_start = %(transaction_started)s::timestamptz
