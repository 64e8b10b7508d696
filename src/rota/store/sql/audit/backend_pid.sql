-- Return the process id of this session's backend.
select pg_backend_pid()
