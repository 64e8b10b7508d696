-- Begin an iteration of a service. Returns its number; no row if the term has ended. If the previous iteration is
-- still open, it is marked as lost: the answer to its begin may never have arrived. The latest thousand iterations are
-- kept.
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
