-- What was counted by the minute: folded for days, and by each worker in the last hour.

insert into rota.minute_stats (
       minute, queue, task, worker, claimed, given_back, succeeded, failed, cancelled, expired, skipped, quarantined,
       retried, slept, attempts, took, longest, waits, waited, longest_wait)
select date_trunc('minute', spots.now) - n * interval '1 min', pg_temp.queue(kind), pg_temp.task(kind), 0,
       40 - kind, 0, 38 - kind %% 38, kind %% 3, 0, 0, 0, 0, kind %% 2, kind %% 2, 40, 40 * (1 + kind %% 5), 9 + n %% 7,
       40, 40 * (2 + sin(n / 60.0)), 12
  from generate_series(60, %(days)s * 1440) as n, generate_series(0, 39) as kind, spots;

insert into rota.minute_stats (
       minute, queue, task, worker, claimed, given_back, succeeded, failed, cancelled, expired, skipped, quarantined,
       retried, slept, attempts, took, longest, waits, waited, longest_wait)
select date_trunc('minute', spots.now) - n * interval '1 min', pg_temp.queue(kind), pg_temp.task(kind), worker,
       40 - kind, 0, 38 - kind %% 38, kind %% 3, 0, 0, 0, 0, kind %% 2, kind %% 2, 40, 40 * (1 + kind %% 5), 9 + n %% 7,
       40, 40 * (2 + sin(n / 60.0)), 12
  from generate_series(0, 59) as n, generate_series(0, 39) as kind, spots,
       generate_series(1, %(workers)s) as worker
 where worker %% 10 = kind %% 10;

insert into rota.queue_samples (minute, queue, ready, oldest, seq)
select date_trunc('minute', spots.now) - n * interval '1 min', pg_temp.queue(kind * 5),
       (1000 * (1.5 + sin(n / 200.0)))::bigint, 30 * (1.5 + cos(n / 90.0)), spots.queued - n
  from generate_series(0, %(days)s * 1440) as n, generate_series(0, 7) as kind, spots;
