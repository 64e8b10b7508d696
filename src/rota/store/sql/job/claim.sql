-- Take up to `limit` jobs from ready for this worker: one row in claims, whose id is the fence.
--
-- Places (queue and lane) are read in the order given, each from its floor on, oldest first; rows that
-- others are taking are skipped, never waited for. Only tasks the worker knows are taken: those named, or
-- those it has listed as its skills. Suspects are left to claim_suspects; from a queue that is paused nothing is taken,
-- and a worker that drains or was declared dead gets nothing.
-- The commit is not flushed to disk: a claim that a crash forgets leaves its jobs in ready, and
-- completing under it is refused.
with pick as materialized (
    select found.spot, found.seq, found.job, found.attempt, found.lost, branch_key.number as branch_key
      from unnest(%(queues)b::text[], %(priorities)s::smallint[], %(cursors)s::bigint[])
           with ordinality as branch_key (queue, priority, floor, number)
     cross join lateral (
           select queued.ctid as spot, queued.seq, queued.job, queued.attempt, queued.lost
             from rota.queued
            where queued.queue = branch_key.queue
              and queued.priority = branch_key.priority
              and queued.seq >= branch_key.floor
              and queued.lost >= 0
              and (queued.task = any(%(tasks)s::text[])
                   or (select skill.prefetchable or not %(prefetch_only)b::boolean
                         from rota.worker_tasks as skill
                        where skill.worker = %(worker)b::bigint
                          and skill.task = queued.task))
            order by queued.seq
            limit %(limit)b::int
              for update skip locked
           ) as found
     where (select workers.state = 'active' from rota.workers where workers.id = %(worker)b::bigint)
       and branch_key.queue <> all(array(select pauses.queue from rota.pauses))
     limit %(limit)b::int
),
gone as (
    delete from rota.queued where queued.ctid = any(array(select pick.spot from pick))
),
claimed as (
    insert into rota.claims (worker, nonce, jobs, attempts, lost, seqs)
    select %(worker)b::bigint, %(nonce)b::uuid,
           array_agg(pick.job), array_agg(pick.attempt), array_agg(pick.lost), array_agg(pick.seq)
      from pick
    having count(*) > 0
    returning id
)
select claimed.id, pick.job, pick.attempt, pick.lost, pick.branch_key::int, pick.seq,
       job.task, job.queue, job.args::text, job.options::text, job.expires <= rota.clock(),
       job.run, job.inputs::text,
       case when (select exists (select from rota.checkpoints)) then
            (select checkpoints.state::text from rota.checkpoints where checkpoints.job = pick.job) end,
       case when (select exists (select from rota.steps)) then
            (select true from rota.steps where steps.job = pick.job limit 1) end,
       job.trace, case when pick.seq = pick.job then date_part('epoch', rota.clock() - job.created) else -1 end
  from claimed
 cross join pick
 -- One look-up a job, whatever the statistics say: `offset 0` leaves the planner no other way.
 cross join lateral (
       select jobs.task, jobs.queue, jobs.args, jobs.options, jobs.expires, jobs.run, jobs.inputs, jobs.trace,
              jobs.created
         from rota.jobs
        where jobs.id = pick.job
       offset 0
       ) as job
 where (select set_config('synchronous_commit', 'off', true)) is not null
