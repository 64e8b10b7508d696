-- What time it is, by the one clock that decides.
select rota.clock()
