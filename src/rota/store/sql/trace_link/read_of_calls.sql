-- Where the calls of a job were in a trace, of those that this run waited for: tasks, and the last ones of flows.
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
