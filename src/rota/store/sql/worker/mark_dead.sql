-- Declare workers dead if their heartbeat counters have not changed. Returns those declared dead. A worker that has
-- sent a heartbeat since, or is sending one now (its row is locked), is skipped.
--
-- The jobs that caused the death are recorded as far as they are known:
--
--   charged    the only job that the worker held, or a suspect that ran alone
--   doubtful   a suspect that ran alone at first, but no longer does after a long time
--   none       all other jobs
with silent as materialized (
    select workers.id
      from unnest(%(workers)s::bigint[], %(beats)s::bigint[]) as given (worker, beats)
      join rota.workers on workers.id = given.worker
                       and workers.beats = given.beats
                       and workers.state in ('active', 'draining')
     order by workers.id
       for update of workers skip locked
),
held as materialized (
    select silent.id as worker, member.job, claims.exclusive
      from silent
      join rota.claims on claims.worker = silent.id and claims.expires is null
     cross join lateral unnest(claims.jobs) as member (job)
),
blame as (
    select held.worker,
           case when count(*) = 1 then array_agg(held.job)
                else array_agg(held.job) filter (where held.exclusive) end as charged_jobs,
           case when count(*) > 1 then array_agg(held.job) filter (where not held.exclusive) end as doubtful_jobs
      from held
     group by held.worker
),
forgotten as (
    delete from rota.worker_tasks where worker_tasks.worker = any(array(select silent.id from silent))
)
update rota.workers
   set state = 'dead', ended = rota.clock(),
       charged_jobs = (select blame.charged_jobs from blame where blame.worker = workers.id),
       doubtful_jobs = (select blame.doubtful_jobs from blame where blame.worker = workers.id)
 where workers.id = any(array(select silent.id from silent))
returning workers.id, workers.host, workers.pid
