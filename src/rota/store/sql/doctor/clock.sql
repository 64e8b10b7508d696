-- Return the server's time, and the offset of Rota's clock in seconds.
select clock_timestamp(), extract(epoch from rota.clock() - statement_timestamp())::float8
