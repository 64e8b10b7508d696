-- Have nobody claim from a queue, from now on. Answers whether that is new: one that is paused stays as it is.
with paused as (
    insert into rota.pauses (queue, operator, reason)
    values (%(queue)s, %(operator)s, %(reason)s)
    on conflict (queue) do nothing
    returning queue
)
select exists (select from paused)
