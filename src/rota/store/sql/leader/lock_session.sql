-- Take the seats that are free, for as long as this session lives. Answers those it has got.
--
-- Not to be asked for a seat that this session has: it would have it twice.
select given.seat
  from unnest(%(session_locks)s::int[]) as given (seat)
 where pg_try_advisory_lock(%(namespace)s::int, given.seat)
