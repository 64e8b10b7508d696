-- Write the trace positions of jobs that are about to finish, for each of their successors: jobs of their run, and the
-- run itself if a job waits for it.
insert into rota.trace_links (job, trace)
select child.id, given.trace
  from unnest(%(jobs)s::bigint[], %(traces)s::text[]) as given (job, trace)
 cross join lateral (
       select jobs.run, jobs.successors
         from rota.jobs
        where jobs.id = given.job
       offset 0
       ) as job
 cross join lateral unnest(job.successors) as child (id)
 where child.id <> job.run
    or (select runs.parent from rota.runs where runs.id = job.run) is not null
returning trace_links.job
