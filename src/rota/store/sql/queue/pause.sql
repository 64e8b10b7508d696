-- Pause a queue: no job is claimed from it. Returns false if it is already paused; that pause is left unchanged.
with paused as (
    insert into rota.pauses (queue, operator, reason)
    values (%(queue)s, %(operator)s, %(reason)s)
    on conflict (queue) do nothing
    returning queue
)
select exists (select from paused)
