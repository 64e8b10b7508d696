-- Have nobody claim from a queue, from now on. Answers whether that is new: one that is paused stays as it is.
with paused as (
    insert into rota.pauses (queue, who, why)
    values (%(queue)s, %(who)s, %(why)s)
    on conflict (queue) do nothing
    returning queue
)
select exists (select from paused)
