-- Let jobs sleep until the earliest wake-up time of their open steps, or until a signal. If the time has passed or the
-- signal is there, queue the job at once. The attempt is not counted. A job with a cancel request is cancelled instead.
-- Returns the same row as `job/finish`.
--
-- Earlier statements of the transaction have locked first the signals, then the claims. So a signal or cancel request
-- written before is visible here, and the sender of a later one finds the job sleeping.
with waited as materialized (
    select given.job, min(coalesce(step.wake_at, 'infinity')) as wake_at,
           array_agg(given.name) filter (where given.kind = 'wait') as signals,
           coalesce(bool_or(step.wake_at <= rota.clock() or said.at is not null), false) as over
      from unnest(%(waiting_jobs)s::bigint[], %(runs)s::bigint[], %(kinds)s::text[], %(names)s::text[],
                  %(numbers)s::int[])
           as given (job, run, kind, name, number)
     cross join lateral (
           select steps.wake_at
             from rota.steps
            where steps.job = given.job and steps.kind = given.kind::rota.entry_kind and steps.name = given.name
              and steps.number = given.number
           offset 0
           ) as step
      left join lateral (
           select signals.at
             from rota.signals
            where given.kind = 'wait' and signals.run = given.run and signals.name = given.name
              and signals.at is not null
           offset 0
           ) as said on true
     group by given.job
),
removed as materialized (
    select removed.*
      from rota.remove_from_claims(%(worker)b::bigint, %(claims)s::bigint[], %(jobs)s::bigint[]) as removed
),
ended as (
    insert into rota.outcomes (job, claim, worker, state, attempt)
    select removed.job, removed.claim, %(worker)b::bigint, 'cancelled', removed.attempt
      from removed
     where removed.to_cancel
    on conflict (job) do nothing
),
-- Grouped instead of joined: without row estimates, the planner could choose a quadratic nested loop.
together as materialized (
    select each.job, max(each.attempt) as attempt, max(each.crashes) as crashes, bool_or(each.to_cancel) as to_cancel,
           max(each.wake_at) as wake_at, max(each.signals) as signals, bool_or(each.over) as over
      from (select removed.job, removed.attempt, removed.crashes, removed.to_cancel,
                   null::timestamptz as wake_at, null::text[] as signals, null::boolean as over
              from removed
             union all
            select waited.job, null, null, null, waited.wake_at, waited.signals, waited.over
              from waited) as each
     group by each.job
    having count(each.attempt) > 0
),
-- The code ran and returned, so the job is no longer a suspect.
placed as materialized (
    select together.job, together.attempt, together.crashes, job.priority, job.queue, job.task, together.wake_at,
           together.signals, coalesce(together.over, true) as over
      from together
     cross join lateral (
           select jobs.priority, jobs.queue, jobs.task from rota.jobs where jobs.id = together.job offset 0
           ) as job
     where not together.to_cancel
),
slept as (
    insert into rota.sleeping (job, wake_at, priority, attempt, crashes, queue, task, signals)
    select placed.job, placed.wake_at, placed.priority, placed.attempt, placed.crashes, placed.queue, placed.task,
           placed.signals
      from placed
     where not placed.over
),
enqueued as (
    insert into rota.queued (seq, job, priority, attempt, crashes, queue, task)
    select nextval('rota.ids'), placed.job, placed.priority, placed.attempt, placed.crashes, placed.queue, placed.task
      from placed
     where placed.over
    returning queued.queue
)
select array(select removed.job from removed),
       array(select distinct enqueued.queue from enqueued) || passed.queues, passed.runs, passed.has_pending
  from rota.release_successors(
       array(select removed.job from removed where removed.to_cancel),
       array(select 'cancelled'::rota.outcome from removed where removed.to_cancel)) as passed
