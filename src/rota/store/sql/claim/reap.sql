-- Take back what a claim holds; with `only`, just these of its jobs.
select reaped.jobs, reaped.queues, reaped.runs, reaped.rest
  from rota.reap(%(claim)s::bigint, %(only_jobs)s::bigint[]) as reaped
