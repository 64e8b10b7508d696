-- Claim suspects: jobs that were lost with a worker. Each gets its own claim. Otherwise as `job/claim`.
--
-- First up to `limit` mild suspects, which were lost once. If there is none and `grave` is true, one grave suspect,
-- which must run alone.
--
-- Reads the index of suspects. `is true` keeps the planner from using the index of queues, which contains all jobs.
with mild as materialized (
    select queued.ctid as tuple, queued.seq, queued.job, queued.attempt, queued.crashes, queued.suspicion
      from rota.queued
     where queued.suspicion = 'mild'
       and (queued.queue = any(%(queues)b::text[])) is true
       and (queued.queue <> all(array(select pauses.queue from rota.pauses))) is true
       and (queued.task = any(%(tasks)s::text[])
            or (select true
                  from rota.worker_tasks as listed
                 where listed.worker = %(worker)b::bigint
                   and listed.task = queued.task))
       and (select workers.state = 'active' from rota.workers where workers.id = %(worker)b::bigint)
     order by queued.priority desc, queued.seq
     limit %(limit)b::int
       for update skip locked
),
grave as materialized (
    select queued.ctid as tuple, queued.seq, queued.job, queued.attempt, queued.crashes, queued.suspicion
      from rota.queued
     where %(grave)b::boolean
       and not exists (select from mild)
       and queued.suspicion = 'grave'
       and (queued.queue = any(%(queues)b::text[])) is true
       and (queued.queue <> all(array(select pauses.queue from rota.pauses))) is true
       and (queued.task = any(%(tasks)s::text[])
            or (select true
                  from rota.worker_tasks as listed
                 where listed.worker = %(worker)b::bigint
                   and listed.task = queued.task))
       and (select workers.state = 'active' from rota.workers where workers.id = %(worker)b::bigint)
     order by queued.priority desc, queued.seq
     limit 1
       for update skip locked
),
picked as materialized (
    select mild.* from mild
     union all
    select grave.* from grave
),
dequeued as (
    delete from rota.queued where queued.ctid = any(array(select picked.tuple from picked))
),
claimed as (
    insert into rota.claims (worker, nonce, suspicion, jobs, attempts, crashes, seqs)
    select %(worker)b::bigint, %(nonce)b::uuid, picked.suspicion,
           array[picked.job], array[picked.attempt], array[picked.crashes], array[picked.seq]
      from picked
    returning claims.id, claims.jobs[1] as job
)
select claimed.id, picked.job, picked.attempt, picked.crashes, 0, picked.seq,
       job.task, job.queue, job.args::text, job.options::text, job.expires <= rota.clock(),
       job.run, job.inputs::text,
       (select checkpoints.state::text from rota.checkpoints where checkpoints.job = picked.job),
       (select true from rota.steps where steps.job = picked.job limit 1),
       job.trace, -1::float8, picked.suspicion::text
  from claimed
  join picked on picked.job = claimed.job
 cross join lateral (
       select jobs.task, jobs.queue, jobs.args, jobs.options, jobs.expires, jobs.run, jobs.inputs, jobs.trace
         from rota.jobs
        where jobs.id = picked.job
       offset 0
       ) as job
 order by picked.crashes, picked.seq
