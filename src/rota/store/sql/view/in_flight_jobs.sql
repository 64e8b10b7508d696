-- Return unfinished jobs of one task, at most `limit`: first those in progress (running, sleeping, quarantined), then
-- those that are queued or waiting; in each group the oldest first, or the newest.
with place as materialized (
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
select job.id, job.run, job.queue, place.state, place.attempt, job.created, job.args::text, job.options::text,
       job.inputs::text,
       (select checkpoints.state::text from rota.checkpoints where checkpoints.job = job.id),
       exists (select from rota.steps where steps.job = job.id)
  from place
 cross join lateral (
       select jobs.* from rota.jobs where jobs.id = place.job offset 0) as job
 order by place.turn, place.age
