-- Plain unfinished jobs: queued, sleeping and held; a few are quarantined or suspects.

insert into rota.jobs (id, created, priority, task, queue, key, args)
select spots.queued + n * 10, spots.now - interval '1 hour' * (1 - n::float8 / %(queued)s), n %% 3,
       pg_temp.task(pg_temp.kind(n)), pg_temp.queue(pg_temp.kind(n)),
       case when n %% 10 = 3 then 'queued-' || n end, json_build_object('order', n)
  from generate_series(0, %(queued)s - 1) as n, spots;

insert into rota.queued (seq, job, priority, suspicion, queue, task)
select job.id, job.id, job.priority, case when job.id %% 100000 = 0 then 'mild' end::rota.suspicion, job.queue, job.task
  from rota.jobs as job, spots
 where job.id >= spots.queued and job.id < spots.asleep;

insert into rota.jobs (id, created, priority, task, queue, key, args)
select spots.asleep + n * 10, spots.now - interval '1 hour' * (1 - n::float8 / %(asleep)s), n %% 3,
       pg_temp.task(pg_temp.kind(n)), pg_temp.queue(pg_temp.kind(n)),
       case when n %% 10 = 3 then 'asleep-' || n end, json_build_object('order', n)
  from generate_series(0, %(asleep)s - 1) as n, spots;

insert into rota.sleeping (job, wake_at, priority, attempt, queue, task, signals, since)
select job.id,
       case when job.id %% 70 = 0 then 'infinity' else spots.now + interval '1 min' * (job.id %% 10000 + 60) end,
       job.priority, 1 + job.id / 10 %% 3, job.queue, job.task, case when job.id %% 70 = 0 then array['approved'] end,
       job.created
  from rota.jobs as job, spots
 where job.id >= spots.asleep and job.id < spots.held;

insert into rota.jobs (id, created, priority, task, queue, key, args)
select spots.held + n * 10, spots.now - interval '1 hour' * (1 - n::float8 / (%(workers)s * %(held)s)), n %% 3,
       pg_temp.task(pg_temp.kind(n)), pg_temp.queue(pg_temp.kind(n)),
       case when n %% 10 = 3 then 'held-' || n end, json_build_object('order', n)
  from generate_series(0, %(workers)s * %(held)s - 1) as n, spots;

insert into rota.claims (worker, nonce, at, jobs, attempts, crashes, seqs)
select n + 1, gen_random_uuid(), spots.now - interval '1 s' * (n %% 60), held.jobs,
       array(select 1::smallint from unnest(held.jobs)), array(select 0::smallint from unnest(held.jobs)), held.jobs
  from generate_series(0, %(workers)s - 1) as n, spots,
       lateral (select array(select spots.held + (n * %(held)s + each) * 10
                               from generate_series(0, %(held)s - 1) as each)
                       || array(select spots.flows + flow * 10 + 3
                                  from generate_series(n, %(open_flows)s - 1, %(workers)s) as flow) as jobs) as held;

insert into rota.progress (job, claim, done, total, note)
select spots.held + n * 10, n / %(held)s + 1, n %% 100, 100, 'page ' || n %% 100
  from generate_series(0, %(workers)s * %(held)s - 1, 2) as n, spots;

with moved as (
    delete from rota.queued
     using (select queued.job from rota.queued where queued.suspicion is null order by queued.job limit 50) as few
     where queued.job = few.job
    returning queued.*
)
insert into rota.quarantine (job, priority, attempt, crashes, queue, task, error)
select moved.job, moved.priority, 3, 3, moved.queue, moved.task, '{"type": "WorkerLost", "message": "three died of it"}'
  from moved;
