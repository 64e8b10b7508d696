-- Declare workers dead that have not beaten more often than this. Answers those that are
-- dead now; whoever is beating at this moment is not among them, nor is one that has beaten since.
--
-- Of what such a worker held, what killed it, as far as one can tell: the one job it held, or a suspect that ran
-- alone. One that ran alone at first, and for long, may have. Of any others nobody knows.
with gone as materialized (
    select workers.id
      from unnest(%(workers)s::bigint[], %(beats)s::bigint[]) as given (worker, beats)
      join rota.workers on workers.id = given.worker
                       and workers.beats = given.beats
                       and workers.state in ('active', 'draining')
     order by workers.id
       for update of workers skip locked
),
held as materialized (
    select gone.id as worker, member.job, claims.exclusive
      from gone
      join rota.claims on claims.worker = gone.id and claims.expires is null
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
    delete from rota.worker_tasks where worker_tasks.worker = any(array(select gone.id from gone))
)
update rota.workers
   set state = 'dead', ended = rota.clock(),
       charged_jobs = (select blame.charged_jobs from blame where blame.worker = workers.id),
       doubtful_jobs = (select blame.doubtful_jobs from blame where blame.worker = workers.id)
 where workers.id = any(array(select gone.id from gone))
returning workers.id, workers.host, workers.pid
