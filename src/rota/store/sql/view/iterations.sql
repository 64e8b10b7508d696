-- Return the latest iterations of a service, newest first.
select iterations.number, iterations.term, iterations.host, iterations.pid, iterations.started, iterations.ended,
       iterations.outcome, iterations.error
  from rota.iterations
 where iterations.service = %(service)s::text
 order by iterations.number desc
 limit %(limit)s::int
