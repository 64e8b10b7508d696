-- Return the indexes of Rota's tables: table, true if valid and ready, number of scans, size in bytes.
select class.relname::text, of.relname::text, pointer.indisvalid and pointer.indisready, stat.idx_scan,
       pg_relation_size(class.oid)
  from pg_catalog.pg_index as pointer
  join pg_catalog.pg_class as class on class.oid = pointer.indexrelid
  join pg_catalog.pg_class as of on of.oid = pointer.indrelid
  left join pg_catalog.pg_stat_all_indexes as stat on stat.indexrelid = pointer.indexrelid
 where of.relnamespace = (select space.oid from pg_catalog.pg_namespace as space where space.nspname = %(schema)s::text)
   and of.relkind = 'r'
 order by class.relname
