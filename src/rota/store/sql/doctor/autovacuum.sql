-- Return the settings of autovacuum: enabled, statistics enabled, seconds between its runs; and the age of the
-- database's oldest transaction id, for the forced vacuum against wraparound.
select current_setting('autovacuum')::boolean, current_setting('track_counts')::boolean,
       extract(epoch from current_setting('autovacuum_naptime')::interval)::float8,
       (select age(database.datfrozenxid)
          from pg_catalog.pg_database as database
         where database.datname = current_database())
