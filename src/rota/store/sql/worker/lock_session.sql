-- Acquire the session lock of a worker, held as long as this connection lives: if the lock is free, the worker is
-- lost. Returns false if another session holds it.
select pg_try_advisory_lock(%(namespace)s::int, %(session_lock)s::int)
