-- Counts by the minute: folded by day for past days, and by worker for the last hour.

insert into rota.minute_stats (
       minute, queue, task, worker, claimed, returned, succeeded, failed, cancelled, expired, skipped, quarantined,
       retried, suspended, attempts, seconds, max_seconds, wait_count, wait_seconds, max_wait_seconds)
select date_trunc('minute', spots.now) - n * interval '1 min', pg_temp.queue(kind), pg_temp.task(kind), 0,
       40 - kind, 0, 38 - kind %% 38, kind %% 3, 0, 0, 0, 0, kind %% 2, kind %% 2, 40, 40 * (1 + kind %% 5), 9 + n %% 7,
       40, 40 * (2 + sin(n / 60.0)), 12
  from generate_series(60, %(days)s * 1440) as n, generate_series(0, 39) as kind, spots;

insert into rota.minute_stats (
       minute, queue, task, worker, claimed, returned, succeeded, failed, cancelled, expired, skipped, quarantined,
       retried, suspended, attempts, seconds, max_seconds, wait_count, wait_seconds, max_wait_seconds)
select date_trunc('minute', spots.now) - n * interval '1 min', pg_temp.queue(kind), pg_temp.task(kind), worker,
       40 - kind, 0, 38 - kind %% 38, kind %% 3, 0, 0, 0, 0, kind %% 2, kind %% 2, 40, 40 * (1 + kind %% 5), 9 + n %% 7,
       40, 40 * (2 + sin(n / 60.0)), 12
  from generate_series(0, 59) as n, generate_series(0, 39) as kind, spots,
       generate_series(1, %(workers)s) as worker
 where worker %% 10 = kind %% 10;

insert into rota.queue_samples (minute, queue, queued, oldest_seconds, seq)
select date_trunc('minute', spots.now) - n * interval '1 min', pg_temp.queue(kind * 5),
       (1000 * (1.5 + sin(n / 200.0)))::bigint, 30 * (1.5 + cos(n / 90.0)), spots.queued - n
  from generate_series(0, %(days)s * 1440) as n, generate_series(0, 7) as kind, spots;
