-- Begin a term, if no other instance leads. Return its number and the number of elections in the last minute. No row:
-- another instance leads, or a transaction that asserted the last term is still open. Does not wait.
--
--   without lease   the session lock must be held by this session; the term ends with the session
--   with lease      for instances without their own session: acquires the session lock for this transaction only, which
--                   fails while another session holds it
--
-- A lease that has not expired prevents both. So an instance that connects through a pooler and one that connects
-- directly never lead at the same time.
with session_lock as materialized (
    select case when %(lease)s::float8 is not null
                then pg_try_advisory_xact_lock(%(namespace)s::int, %(session_lock)s::int)
                else exists (select
                               from pg_catalog.pg_locks as held
                              where held.locktype = 'advisory'
                                and held.classid::bigint = %(namespace)s::bigint
                                and held.objid::bigint = %(session_lock)s::bigint & 4294967295
                                and held.objsubid = 2
                                and held.granted
                                and held.pid = pg_backend_pid())
           end as acquired
),
vacant as materialized (
    select leaders.name
      from rota.leaders
     where leaders.name = %(name)s::text
       and (select session_lock.acquired from session_lock)
       and (leaders.instance is null or leaders.expires is null or leaders.expires <= rota.clock())
       for update skip locked
),
again as (
    update rota.leaders
       set term = leaders.term + 1, instance = %(instance)s::uuid, host = %(host)s, pid = %(pid)s, label = %(label)s,
           since = rota.clock(), expires = rota.clock() + make_interval(secs => %(lease)s::float8),
           session_lock = %(session_lock)s::int,
           elections = (leaders.elections || rota.clock())[greatest(cardinality(leaders.elections) - 8, 1):]
      from vacant
     where leaders.name = vacant.name
    returning leaders.term, leaders.elections
),
first as (
    insert into rota.leaders (name, term, instance, host, pid, label, since, expires, session_lock, elections)
    select %(name)s, 1, %(instance)s::uuid, %(host)s, %(pid)s, %(label)s, rota.clock(),
           rota.clock() + make_interval(secs => %(lease)s::float8), %(session_lock)s::int, array[rota.clock()]
     where (select session_lock.acquired from session_lock)
       and not exists (select from rota.leaders where leaders.name = %(name)s::text)
    on conflict do nothing
    returning leaders.term, leaders.elections
)
select elected.term,
       (select count(*)
          from unnest(elected.elections) as election (at)
         where election.at > rota.clock() - interval '1 minute')
  from (select * from again union all select * from first) as elected
