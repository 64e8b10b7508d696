-- Whether the server removes what is gone by itself, and how often it looks; and how many transactions are left before
-- it has to, whatever else it does.
select current_setting('autovacuum')::boolean, current_setting('track_counts')::boolean,
       extract(epoch from current_setting('autovacuum_naptime')::interval)::float8,
       (select age(database.datfrozenxid)
          from pg_catalog.pg_database as database
         where database.datname = current_database())
