-- One process migrates at a time; the others wait here and then find it done.
select pg_advisory_xact_lock(%(namespace)s::int, %(key)s::int)
