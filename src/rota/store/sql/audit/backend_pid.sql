-- The process of the server that this transaction is in.
select pg_backend_pid()
