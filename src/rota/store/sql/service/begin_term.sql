-- Begin the term of an instance that runs a service. Returns the seconds until the service is due, and its consecutive
-- failures. No row: the term has already ended.
--
-- Open iterations of earlier terms are marked as lost. A lost or interrupted iteration is repeated at once. A service
-- that is lost repeatedly may be the reason its instances crash, so its delay grows each time.
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
                                     + make_interval(secs => least(2.0 ^ least(known.failures - 1, 10),
                                                                   %(max_delay)s::float8))
                                else known.retry_at end from losses)
    returning known.iteration, known.started, known.failures, known.retry_at
)
select greatest(
           case when last.outcome in ('succeeded', 'failed')
                then extract(epoch from known.started + make_interval(secs => coalesce(%(every)s::float8, 0))
                                        - rota.clock())
           end,
           extract(epoch from known.retry_at - rota.clock()),
           0)::float8,
       known.failures
  from known
  left join rota.iterations as last
    on last.service = %(name)s::text
   and last.number = known.iteration
