-- Return the current time by the clock that all statements use.
select rota.clock()
