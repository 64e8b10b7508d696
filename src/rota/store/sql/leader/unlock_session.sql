-- Give up the seats that this session has of these.
select count(pg_advisory_unlock(%(namespace)s::int, seat)) from unnest(%(session_locks)s::int[]) as seat
