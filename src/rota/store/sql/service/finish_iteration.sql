-- Record the end of an iteration. An iteration that was marked as lost stays lost. `delay` is the number of seconds
-- until the next one, after a failure.
with ended as (
    update rota.iterations
       set ended = rota.clock(), outcome = %(outcome)s, error = %(error)s::json
     where iterations.service = %(name)s::text
       and iterations.number = %(number)s::bigint
       and iterations.term = %(term)s::bigint
       and iterations.ended is null
    returning iterations.number
)
update rota.services
   set failures = %(failures)s::int,
       retry_at = case when %(delay)s::float8 > 0 then rota.clock() + make_interval(secs => %(delay)s::float8) end
  from ended
 where services.name = %(name)s::text
   and services.iteration = ended.number
