-- Return Rota's tables: estimated live and dead rows, size, true if autovacuum is enabled, seconds since the last
-- vacuum.
select stat.relname::text, stat.n_live_tup, stat.n_dead_tup, pg_total_relation_size(stat.relid) as bytes,
       coalesce((select option.option_value::boolean
                   from pg_options_to_table(class.reloptions) as option
                  where option.option_name = 'autovacuum_enabled'), true) as vacuumed,
       extract(epoch from clock_timestamp() - greatest(stat.last_autovacuum, stat.last_vacuum))::float8 as ago
  from pg_catalog.pg_stat_user_tables as stat
  join pg_catalog.pg_class as class on class.oid = stat.relid
 where stat.schemaname = %(schema)s::text
 order by stat.n_dead_tup desc
