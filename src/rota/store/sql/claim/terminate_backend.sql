-- Terminate the backend of a transaction with a lost connection. Until the server notices the loss, that transaction
-- keeps its claim locked. The start time is compared because the backend may have begun another transaction since.
select pg_terminate_backend(activity.pid)
  from pg_catalog.pg_stat_activity as activity
 where activity.pid = %(pid)s::int
   and activity.xact_start = %(transaction_started)s::timestamptz
