-- Jobs of one task that have not ended, at most `limit`: first those that are under way (running, asleep, in
-- quarantine), then those that wait their turn; among these the oldest first, or the newest.
with branch_key as materialized (
    select either.job, either.state, either.attempt, either.turn,
           case when %(newest_first)s::boolean then -either.job else either.job end as age
      from (select member.job, 'running' as state, member.attempt, 1 as turn
              from rota.claims
             cross join lateral unnest(claims.jobs, claims.attempts) as member (job, attempt)
             cross join lateral (
                   select jobs.task from rota.jobs where jobs.id = member.job offset 0) as held
             where held.task = %(task)s::text
             union all
            select sleeping.job, 'sleeping', sleeping.attempt, 1
              from rota.sleeping
             where sleeping.task = %(task)s::text
             union all
            select quarantine.job, 'quarantined', quarantine.attempt, 1
              from rota.quarantine
             where quarantine.task = %(task)s::text
             union all
            select queued.job, 'queued', queued.attempt, 2
              from rota.queued
             where queued.task = %(task)s::text
             union all
            select waiting.job, 'waiting', waiting.attempt, 2
              from rota.waiting
             where waiting.task = %(task)s::text) as either
     order by either.turn, age
     limit %(limit)s::int
)
select job.id, job.run, job.queue, branch_key.state, branch_key.attempt, job.created, job.args::text, job.options::text,
       job.inputs::text,
       (select checkpoints.state::text from rota.checkpoints where checkpoints.job = job.id),
       exists (select from rota.steps where steps.job = job.id)
  from branch_key
 cross join lateral (
       select jobs.* from rota.jobs where jobs.id = branch_key.job offset 0) as job
 order by branch_key.turn, branch_key.age
