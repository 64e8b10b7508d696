-- Lock those of these schedules that nobody else has in hand. Answers their names.
select schedules.name
  from rota.schedules
 where schedules.name = any(%(names)s::text[])
   for update skip locked
