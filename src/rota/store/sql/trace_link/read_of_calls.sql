-- Return the trace positions of a job's calls that this run waited for: of tasks, and of the final tasks of flows.
select link.trace
  from (
       select %(run)s::bigint as id
        union all
       select part.id
         from rota.runs as part
        where part.parent = %(parent)s::bigint
          and part.successors = array[%(run)s::bigint]
       ) as wanted
 cross join lateral (
       select trace_links.trace
         from rota.trace_links
        where trace_links.job = wanted.id
        limit %(limit)s::int
       ) as link
 limit %(limit)s::int
