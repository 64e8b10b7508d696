-- Return runs by id, latest first, of those that exist. The claims are read once for all of them.
with page as materialized (
    select given.id, given.is_flow from unnest(%(ids)s::bigint[], %(is_flow)s::boolean[]) as given (id, is_flow)
),
held as materialized (
    select member.job, member.attempt, claims.worker, claims.at
      from rota.claims
     cross join lateral unnest(claims.jobs, claims.attempts) as member (job, attempt)
     where member.job = any(%(ids)s::bigint[])
)
select page.id, coalesce(job.task, run.flow), page.is_flow, job.queue,
       coalesce(ended.state::text,
                case when page.is_flow or held.job is not null then 'running'
                     when sleeping.job is not null then 'sleeping'
                     when quarantine.job is not null then 'quarantined'
                     else 'queued' end),
       coalesce(ended.attempt, held.attempt, sleeping.attempt, waiting.attempt, quarantine.attempt,
                (select max(attempts.attempt) + 1 from rota.attempts where not page.is_flow and attempts.job = page.id),
                1)::smallint,
       coalesce(ended.worker, held.worker),
       coalesce(ended.at, held.at, sleeping.since, quarantine.at,
                (select max(attempts.at) from rota.attempts where not page.is_flow and attempts.job = page.id),
                job.created, run.created),
       coalesce(job.created, run.created), coalesce(job.key, run.key), nullif(sleeping.wake_at, 'infinity'),
       sleeping.signals,
       progress.done, progress.total, progress.note
  from page
  left join rota.jobs as job on not page.is_flow and job.id = page.id
  left join rota.runs as run on page.is_flow and run.id = page.id
  left join rota.outcomes as ended on ended.job = page.id
  left join rota.sleeping on sleeping.job = page.id
  left join rota.waiting on waiting.job = page.id
  left join rota.quarantine on quarantine.job = page.id
  left join rota.progress on progress.job = page.id
  left join held on held.job = page.id
 where coalesce(job.id, run.id) is not null
 order by page.id desc
