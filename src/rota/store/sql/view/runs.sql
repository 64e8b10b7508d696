-- Runs, the latest first, before an id; of one task or flow, queue or state where asked. Jobs that belong to a
-- run and calls that a job has made are not listed: they are shown with it.
--
-- A state is a place, so those in one are looked for there: among all that ever ran the few that failed, or run,
-- would be far between. What is ready is looked for among the latest where there is much of it.
select page.id, coalesce(job.task, run.name), page.is_flow, job.queue, coalesce(job.state, run.state),
       coalesce(job.attempt, run.attempt), job.worker, coalesce(job.since, run.since), coalesce(job.created, run.created),
       coalesce(job.key, run.key), nullif(asleep.wake, 'infinity'), asleep.signals, progress.done, progress.total,
       progress.note
  from (select found.id, found.is_flow
          from ((select job.id, false as is_flow
                   from rota.jobs as job
                  where (%(state)s::text is null
                         or %(state)s::text = 'ready'
                            and (select count(*) > 10000 from (select from rota.ready limit 10001) as counted)
                            and exists (select from rota.job_state as state
                                         where state.job = job.id and state.state = 'ready'))
                    and job.id < %(before)s::bigint
                    and job.run is null
                    and (%(task)s::text is null or job.task = %(task)s::text)
                    and (%(queue)s::text is null or job.queue = %(queue)s::text)
                  order by job.id desc
                  limit %(limit)s::int)
                 union all
                (select job.id, false
                   from rota.jobs as job
                   join rota.outcomes as ended on ended.job = job.id
                  where %(state)s::text = 'succeeded'
                    and ended.state = 'succeeded'
                    and job.id < %(before)s::bigint
                    and job.run is null
                    and (%(task)s::text is null or job.task = %(task)s::text)
                    and (%(queue)s::text is null or job.queue = %(queue)s::text)
                  order by job.id desc
                  limit %(limit)s::int)
                 union all
                (select job.id, false
                   from (select ended.job
                           from rota.outcomes as ended
                          where ended.state in ('failed', 'cancelled', 'expired')
                            and ended.state = (case when %(state)s::text in ('failed', 'cancelled', 'expired')
                                                    then %(state)s::text end)::rota.outcome
                            and ended.job < %(before)s::bigint
                          union all
                         select asleep.job
                           from rota.asleep
                          where %(state)s::text = 'asleep' and asleep.job < %(before)s::bigint
                          union all
                         select quarantine.job
                           from rota.quarantine
                          where %(state)s::text = 'quarantined' and quarantine.job < %(before)s::bigint
                          union all
                         select member.job
                           from rota.claims cross join lateral unnest(claims.jobs) as member (job)
                          where %(state)s::text = 'running' and member.job < %(before)s::bigint
                          union all
                         select ready.job
                           from rota.ready
                          where %(state)s::text = 'ready'
                            and (select count(*) <= 10000 from (select from rota.ready limit 10001) as counted)
                            and ready.job < %(before)s::bigint) as there
                   join rota.jobs as job on job.id = there.job
                  where job.run is null
                    and (%(task)s::text is null or job.task = %(task)s::text)
                    and (%(queue)s::text is null or job.queue = %(queue)s::text)
                  order by job.id desc
                  limit %(limit)s::int)
                 union all
                (select run.id, true
                   from rota.runs as run
                   left join rota.outcomes as ended on ended.job = run.id
                  where (%(state)s::text is null or %(state)s::text = 'succeeded' and ended.state = 'succeeded')
                    and run.id < %(before)s::bigint
                    and run.flow is not null
                    and run.parent is null
                    and (%(task)s::text is null or run.flow = %(task)s::text)
                    and %(queue)s::text is null
                  order by run.id desc
                  limit %(limit)s::int)
                 union all
                (select run.id, true
                   from (select ended.job
                           from rota.outcomes as ended
                          where ended.state in ('failed', 'cancelled', 'expired')
                            and ended.state = (case when %(state)s::text in ('failed', 'cancelled', 'expired')
                                                    then %(state)s::text end)::rota.outcome
                            and ended.job < %(before)s::bigint
                          union all
                         select waiting.job
                           from rota.waiting
                          where %(state)s::text = 'running' and waiting.job < %(before)s::bigint) as there
                   join rota.runs as run on run.id = there.job
                  where run.flow is not null
                    and run.parent is null
                    and (%(task)s::text is null or run.flow = %(task)s::text)
                    and %(queue)s::text is null
                  order by run.id desc
                  limit %(limit)s::int)) as found
         order by found.id desc
         limit %(limit)s::int) as page
  left join lateral (
       select state.task, state.queue, state.state, state.attempt, state.worker, state.since, job.created, job.key
         from rota.jobs as job
         join rota.job_state as state on state.job = job.id
        where not page.is_flow and job.id = page.id
       offset 0) as job on true
  left join lateral (
       select state.name, state.state, state.attempt, state.since, state.created, state.key
         from rota.run_state as state
        where page.is_flow and state.run = page.id and state.is_flow
       offset 0) as run on true
  left join rota.asleep on asleep.job = page.id
  left join rota.progress on progress.job = page.id
 where %(state)s::text is null or coalesce(job.state, run.state) = %(state)s::text
 order by page.id desc
