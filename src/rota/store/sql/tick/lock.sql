-- Lock these schedules, except those that another transaction has locked. Returns the names of those locked.
select schedules.name
  from rota.schedules
 where schedules.name = any(%(names)s::text[])
   for update skip locked
