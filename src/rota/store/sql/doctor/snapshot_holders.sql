-- Return sessions (of clients and standbys), prepared transactions and replication slots that prevent vacuum from
-- removing dead rows, longest first, as far as this role may see.
select holder.kind, holder.whose, holder.pid, extract(epoch from clock_timestamp() - holder.since)::float8 as seconds,
       holder.age, holder.state
  from ((select 'session' as kind, coalesce(nullif(activity.application_name, ''), activity.usename::text, '') as whose,
                activity.pid, activity.xact_start as since,
                greatest(age(activity.backend_xmin), age(activity.backend_xid)) as age, activity.state
           from pg_catalog.pg_stat_activity as activity
          where activity.pid <> pg_backend_pid()
            and activity.backend_type in ('client backend', 'walsender')
            and (activity.datname = current_database() or activity.datname is null)
            and (activity.backend_xmin is not null or activity.backend_xid is not null)
          order by activity.xact_start nulls last
          limit 5)
         union all
        (select 'prepared', prepared.gid, null, prepared.prepared, age(prepared.transaction), null
           from pg_catalog.pg_prepared_xacts as prepared
          where prepared.database = current_database()
          order by prepared.prepared
          limit 5)
         union all
        (select 'slot', slot.slot_name::text, slot.active_pid, null, greatest(age(slot.xmin), age(slot.catalog_xmin)),
                case when slot.active then 'active' else 'idle' end
           from pg_catalog.pg_replication_slots as slot
          where slot.xmin is not null
          order by greatest(age(slot.xmin), age(slot.catalog_xmin)) desc
          limit 5)) as holder
 order by seconds desc nulls last
