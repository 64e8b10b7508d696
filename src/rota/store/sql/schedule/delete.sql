-- Forget a schedule, which is locked by an earlier statement, and its ticks; runs that it started stay. Answers whether
-- there was one.
with gone as (
    delete from rota.schedules where schedules.name = %(name)s::text
    returning schedules.name
),
ticks as (
    delete from rota.ticks using gone where ticks.schedule = gone.name
)
select exists (select from gone)
