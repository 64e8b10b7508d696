-- Take a lock for as long as this connection lives: where it goes, so has the worker. False: somebody has it.
select pg_try_advisory_lock(%(namespace)s::int, %(session_lock)s::int)
