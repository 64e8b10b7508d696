-- Return the trace positions of the predecessors of these jobs, at most `limit` for each.
select wanted.job, link.trace
  from unnest(%(jobs)s::bigint[]) as wanted (job)
 cross join lateral (
       select trace_links.trace
         from rota.trace_links
        where trace_links.job = wanted.job
        limit %(limit)s::int
       ) as link
