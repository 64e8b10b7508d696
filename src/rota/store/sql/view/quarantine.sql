-- Return quarantined jobs by id, after an id; optionally of one task or queue. Each with the reason: the error of its
-- last attempt if that was lost with its worker, otherwise the error it was quarantined for.
select quarantine.job, coalesce(job.run, job.id) as run, quarantine.task, quarantine.queue, quarantine.attempt,
       quarantine.crashes, quarantine.at,
       case when quarantine.error ->> 'type' <> 'rota.errors.WorkerLost' then quarantine.error
            else coalesce(last.error, quarantine.error) end as error
  from rota.quarantine
  join rota.jobs as job on job.id = quarantine.job
  left join lateral (
       select attempts.error
         from rota.attempts
        where attempts.job = quarantine.job
        order by attempts.attempt desc, attempts.at desc
        limit 1) as last on true
 where quarantine.job > %(after)s::bigint
   and (%(task)s::text is null or quarantine.task = %(task)s::text)
   and (%(queue)s::text is null or quarantine.queue = %(queue)s::text)
 order by quarantine.job
 limit %(limit)s::int
