-- An instance is the one that runs a service from now on. Answers in how many seconds it is due, and how often it has
-- failed in a row. No row: its term is over already.
--
-- Iterations that others began and did not end are lost. One that was lost, or cut short, is made up for at once; a
-- service that is lost again and again may be what its instances die of, and has to wait longer each time.
with led as materialized (
    select
      from rota.leaders
     where leaders.name = %(leader)s::text
       and leaders.term = %(term)s::bigint
       and leaders.instance = %(instance)s::uuid
       for key share
),
lost as (
    update rota.iterations
       set ended = rota.clock(), outcome = 'lost'
     where iterations.service = %(name)s::text
       and iterations.ended is null
       and iterations.term < %(term)s::bigint
       and exists (select from led)
    returning iterations.started
),
losses as (
    select count(*) as count,
           coalesce(max(lost.started) < rota.clock() - make_interval(secs => %(max_delay)s::float8), false) as lasted
      from lost
),
known as (
    insert into rota.services as known (name, every)
    select %(name)s, %(every)s::float8
      from led
    on conflict (name) do update
       set every = excluded.every,
           failures = (select case when losses.count = 0 then known.failures
                                   when losses.lasted then 1
                                   else known.failures + 1 end from losses),
           retry_at = (select case when losses.count > 0 and not losses.lasted and known.failures > 0
                                then rota.clock()
                                     + make_interval(secs => least(2.0 ^ least(known.failures - 1, 10), %(max_delay)s::float8))
                                else known.retry_at end from losses)
    returning known.iteration, known.started, known.failures, known.retry_at
)
select greatest(
           case when last.outcome in ('succeeded', 'failed')
                then extract(epoch from known.started + make_interval(secs => coalesce(%(every)s::float8, 0)) - rota.clock())
           end,
           extract(epoch from known.retry_at - rota.clock()),
           0)::float8,
       known.failures
  from known
  left join rota.iterations as last
    on last.service = %(name)s::text
   and last.number = known.iteration
