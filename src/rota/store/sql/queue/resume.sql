-- Resume a queue. Returns true if it was paused.
with deleted as (
    delete from rota.pauses where pauses.queue = %(queue)s::text returning pauses.queue
)
select exists (select from deleted)
