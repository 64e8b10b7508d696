-- Return the leader of each name, and true if its term is valid: its session lock must exist, or its lease must not
-- have expired. Only the latest elections are stored: returns how many of them were within an hour, and whether there
-- may have been more.
select leaders.name, leaders.term, leaders.instance, leaders.host, leaders.pid, leaders.label, leaders.since,
       leaders.expires,
       case when leaders.instance is null then false
            when leaders.expires is not null then leaders.expires > rota.clock()
            else exists (select
                           from pg_catalog.pg_locks as held
                          where held.locktype = 'advisory'
                            and held.classid::bigint = %(namespace)s::bigint
                            and held.objid::bigint = leaders.session_lock::bigint & 4294967295
                            and held.objsubid = 2
                            and held.granted
                            and held.database = (select here.oid
                                                   from pg_catalog.pg_database as here
                                                  where here.datname = pg_catalog.current_database()))
       end as alive,
       lately.elections, lately.elections > 1 and lately.elections = cardinality(leaders.elections)
                         and leaders.term > lately.elections as or_more
  from rota.leaders
 cross join lateral (select count(*) as elections
                       from unnest(leaders.elections) as election (at)
                      where election.at > rota.clock() - interval '1 hour') as lately
 order by leaders.name
