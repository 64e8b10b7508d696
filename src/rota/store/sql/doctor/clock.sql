-- What time it is: for the server, and for Rota in it.
select clock_timestamp(), extract(epoch from rota.clock() - statement_timestamp())::float8
