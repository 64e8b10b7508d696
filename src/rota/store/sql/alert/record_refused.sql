-- Record how many outcomes of a process were refused.
insert into rota.refused_outcomes (host, pid, jobs) values (%(host)s, %(pid)s::int, %(jobs)s::int)
