-- An iteration begins. Answers its number; no row: the term is over, and nothing begins. The one before has ended, or is
-- lost: its beginning may have been answered to nobody. Of a service's iterations the last thousand are kept.
with led as materialized (
    select
      from rota.leaders
     where leaders.name = %(leader)s::text
       and leaders.term = %(term)s::bigint
       and leaders.instance = %(instance)s::uuid
       and (leaders.expires is null or leaders.expires > rota.clock())
       for key share
),
counted as (
    update rota.services
       set iteration = services.iteration + 1, started = rota.clock(), retry_at = null
      from led
     where services.name = %(name)s::text
    returning services.iteration
),
before as (
    update rota.iterations
       set ended = rota.clock(), outcome = 'lost'
      from counted
     where iterations.service = %(name)s::text
       and iterations.number = counted.iteration - 1
       and iterations.ended is null
),
old as (
    delete from rota.iterations
     using counted
     where iterations.service = %(name)s::text
       and iterations.number <= counted.iteration - 1000
)
insert into rota.iterations (service, number, term, instance, host, pid)
select %(name)s, counted.iteration, %(term)s::bigint, %(instance)s::uuid, %(host)s, %(pid)s
  from counted
returning iterations.number
