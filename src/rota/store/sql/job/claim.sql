-- Claim up to `limit` queued jobs for a worker. They form one row of `claims`; its id is the fence.
--
--   order       lanes (one queue at one priority) in the order given, each from its cursor on, oldest job first
--   contention  rows that another transaction has locked are skipped, never waited for
--   tasks       those named in `tasks`, and those the worker has listed in `worker_tasks`; with `prefetch_only`, of
--               the listed ones only prefetchable tasks
--   excluded    suspects (see `job/claim_suspects`), jobs of paused queues; all jobs unless the worker is active
--   durability  the commit is not flushed to disk. If a server crash loses the claim, its jobs are still in `queued`,
--               and an outcome that names the lost claim is refused
--
-- The last column is the number of seconds the job was queued. It is known only for jobs that were queued at creation,
-- which have their id as `seq`; for all other jobs it is -1.
with picked as materialized (
    select found.tuple, found.seq, found.job, found.attempt, found.crashes, lane.number as lane
      from unnest(%(queues)b::text[], %(priorities)s::smallint[], %(cursors)s::bigint[])
           with ordinality as lane (queue, priority, cursor, number)
     cross join lateral (
           select queued.ctid as tuple, queued.seq, queued.job, queued.attempt, queued.crashes
             from rota.queued
            where queued.queue = lane.queue
              and queued.priority = lane.priority
              and queued.seq >= lane.cursor
              and queued.suspicion is null
              and (queued.task = any(%(tasks)s::text[])
                   or (select listed.prefetchable or not %(prefetch_only)b::boolean
                         from rota.worker_tasks as listed
                        where listed.worker = %(worker)b::bigint
                          and listed.task = queued.task))
            order by queued.seq
            limit %(limit)b::int
              for update skip locked
           ) as found
     where (select workers.state = 'active' from rota.workers where workers.id = %(worker)b::bigint)
       and lane.queue <> all(array(select pauses.queue from rota.pauses))
     limit %(limit)b::int
),
dequeued as (
    delete from rota.queued where queued.ctid = any(array(select picked.tuple from picked))
),
claimed as (
    insert into rota.claims (worker, nonce, jobs, attempts, crashes, seqs)
    select %(worker)b::bigint, %(nonce)b::uuid,
           array_agg(picked.job), array_agg(picked.attempt), array_agg(picked.crashes), array_agg(picked.seq)
      from picked
    having count(*) > 0
    returning id
)
select claimed.id, picked.job, picked.attempt, picked.crashes, picked.lane::int, picked.seq,
       job.task, job.queue, job.args::text, job.options::text, job.expires <= rota.clock(),
       job.run, job.inputs::text,
       case when (select exists (select from rota.checkpoints)) then
            (select checkpoints.state::text from rota.checkpoints where checkpoints.job = picked.job) end,
       case when (select exists (select from rota.steps)) then
            (select true from rota.steps where steps.job = picked.job limit 1) end,
       job.trace, case when picked.seq = picked.job then date_part('epoch', rota.clock() - job.created) else -1 end
  from claimed
 cross join picked
 -- `offset 0` forces one index look-up per job, independent of the table's statistics.
 cross join lateral (
       select jobs.task, jobs.queue, jobs.args, jobs.options, jobs.expires, jobs.run, jobs.inputs, jobs.trace,
              jobs.created
         from rota.jobs
        where jobs.id = picked.job
       offset 0
       ) as job
 where (select set_config('synchronous_commit', 'off', true)) is not null
