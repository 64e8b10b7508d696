-- Release those of these session locks that this session holds.
select count(pg_advisory_unlock(%(namespace)s::int, session_lock)) from unnest(%(session_locks)s::int[]) as session_lock
