-- Plain finished runs with their outcomes.

insert into rota.jobs (id, created, priority, task, queue, key, args)
select n * 10, spots.now - %(days)s * interval '1 day' * (1 - n::float8 / %(runs)s) - interval '2 hours',
       case when n %% 20 = 0 then 5 else 0 end, pg_temp.task(pg_temp.kind(n)), pg_temp.queue(pg_temp.kind(n)),
       case when n %% 10 = 3 then 'order-' || n end, json_build_object('order', n, 'customer', 'c' || n %% 1000)
  from generate_series(1, %(runs)s) as n, spots
 where n %% 50 <> 0;

insert into rota.outcomes (job, claim, worker, at, seconds, state, attempt, result, error)
select job.id, job.id / 10, job.id / 10 %% %(workers)s + 1, job.created + interval '1 s' * (job.id %% 600),
       (job.id %% 997) / 100.0, pg_temp.state(job.id / 10),
       case pg_temp.state(job.id / 10) when 'failed' then 3 else 1 end,
       case pg_temp.state(job.id / 10) when 'succeeded' then '{"rows": 12}'::json end,
       case pg_temp.state(job.id / 10) when 'failed' then pg_temp.error(job.id / 10) end
  from rota.jobs as job;

insert into rota.attempts (job, claim, worker, at, seconds, state, attempt, error)
select job.id, job.id / 10, 1, job.created + try * interval '1 s', 0.5, 'failed', try, pg_temp.error(job.id / 10)
  from rota.jobs as job, generate_series(1, 2) as try
 where pg_temp.state(job.id / 10) = 'failed';

insert into rota.keys (task, key, run)
select job.task, job.key, job.id from rota.jobs as job where job.key is not null;
