-- Acquire the session locks that are free, until this session ends. Return those acquired.
--
-- Do not pass a lock that this session already holds: it would be held twice.
select given.seat
  from unnest(%(session_locks)s::int[]) as given (seat)
 where pg_try_advisory_lock(%(namespace)s::int, given.seat)
