-- Take back the jobs of an orphaned claim, or only those in `only_jobs`.
select reaped.jobs, reaped.queues, reaped.runs, reaped.has_pending
  from rota.reap(%(claim)s::bigint, %(only_jobs)s::bigint[]) as reaped
