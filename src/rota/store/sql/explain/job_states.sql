-- Return the state of jobs with its details: the worker that holds a job and its last heartbeat, the wake-up time, a
-- cancel request, the progress, the error of the last attempt, the pause of the queue.
with held as materialized (
    select member.job, member.attempt, claims.worker, claims.at, claims.expires, claims.exclusive
      from rota.claims
     cross join lateral unnest(claims.jobs, claims.attempts) as member (job, attempt)
     where claims.jobs && %(jobs)s::bigint[]
       and member.job = any(%(jobs)s::bigint[])
)
select job.id, coalesce(job.run, job.id) as run, run.id is not null and run.flow is null as called, job.task, job.queue,
       case when outcome.job is not null then 'ended'
            when held.job is not null then 'running'
            when sleeping.job is not null then 'sleeping'
            when waiting.job is not null then 'waiting'
            when quarantine.job is not null then 'quarantined'
            else 'queued' end as place,
       coalesce(outcome.state::text, '') as outcome,
       coalesce(held.attempt, sleeping.attempt, waiting.attempt, quarantine.attempt, suspect.attempt) as attempt,
       coalesce(outcome.at, held.at, sleeping.since, waiting.since, quarantine.at) as since,
       job.created, job.expires, nullif(sleeping.wake_at, 'infinity'), sleeping.signals, waiting.rule::text,
       suspect.suspicion::text, held.worker, held.expires, held.exclusive,
       worker.state::text as presence, worker.host, worker.pid,
       extract(epoch from rota.clock() - worker.last_beat)::float8 as silent, worker.lag, worker.running,
       worker.capacity,
       case when held.job is not null then
            (select coalesce(sum(cardinality(claims.jobs)), 0)
               from rota.claims
              where claims.worker = held.worker) end::int as together,
       progress.done, progress.total, progress.note, progress.at as progress_at, request.at as cancel_requested,
       coalesce(quarantine.error, last.error) as error, pause.at as paused, pause.operator, pause.reason
  from rota.jobs as job
  left join rota.runs as run on run.id = job.run
  left join rota.outcomes as outcome on outcome.job = job.id
  left join held on held.job = job.id
  left join rota.sleeping on sleeping.job = job.id
  left join rota.waiting on waiting.job = job.id
  left join rota.quarantine on quarantine.job = job.id
  left join rota.queued as suspect on suspect.suspicion is not null and suspect.job = job.id
  left join rota.workers as worker on worker.id = held.worker
  left join rota.progress on progress.job = job.id
  left join rota.cancels as request on request.job = job.id
  left join rota.pauses as pause on pause.queue = job.queue
  left join lateral (
       select attempts.error
         from rota.attempts
        where attempts.job = job.id
        order by attempts.attempt desc, attempts.at desc
        limit 1) as last on true
 where job.id = any(%(jobs)s::bigint[])
 order by array_position(%(jobs)s::bigint[], job.id)
