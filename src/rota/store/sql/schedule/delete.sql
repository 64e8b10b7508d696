-- Delete a schedule and its ticks; its runs are kept. An earlier statement has locked it. Returns true if it existed.
with deleted as (
    delete from rota.schedules where schedules.name = %(name)s::text
    returning schedules.name
),
ticks as (
    delete from rota.ticks using deleted where ticks.schedule = deleted.name
)
select exists (select from deleted)
