-- Where those were in a trace that these jobs have waited for, `limit` for each at most.
select wanted.job, link.trace
  from unnest(%(jobs)s::bigint[]) as wanted (job)
 cross join lateral (
       select trace_links.trace
         from rota.trace_links
        where trace_links.job = wanted.job
        limit %(limit)s::int
       ) as link
