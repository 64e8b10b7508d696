-- Give up the seats that this session has of these.
select count(pg_advisory_unlock(%(space)s::int, seat)) from unnest(%(seats)s::int[]) as seat
