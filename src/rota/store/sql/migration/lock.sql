-- Lock migrations for one process. All other processes wait here and then find the migrations applied.
select pg_advisory_xact_lock(%(namespace)s::int, %(key)s::int)
