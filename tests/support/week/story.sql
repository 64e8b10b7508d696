-- Job with a long history: the first sleeping one.

insert into rota.steps (job, kind, name, number, position, main_branch, seconds, result)
select spots.asleep, 'step', 'fetch', n, n, true, 0.1, '{"page": 1}'
  from generate_series(1, %(notes)s / 10) as n, spots;

insert into rota.logs (job, at, attempt, message)
select spots.asleep, spots.now - n * interval '1 s', 1, 'looked at page ' || n
  from generate_series(1, %(notes)s) as n, spots;

insert into rota.logs (job, at, attempt, message)
select n * 10, spots.now - interval '1 day', 1, 'began' from generate_series(1, %(runs)s, 20) as n, spots;
