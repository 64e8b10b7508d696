-- Return locks and permits by name, after one and between two names: those that are held, or expired within the last
-- hour without a release; or all that exist.
select found.name, found.slot, found.token, found.instance, found.host, found.pid, found.label, found.acquired,
       found.expires, found.renewals, found.max_held, found.awaited_since,
       found.instance is not null and found.expires > rota.clock() as held
  from ((select locks.*
           from rota.locks
          where not %(include_free)s::boolean
            and locks.instance is not null
            and locks.expires > rota.clock() - interval '1 hour'
            and (%(name)s::text is null or locks.name = %(name)s::text)
            and (locks.name, locks.slot) > (%(after_name)s::text, %(after_permit)s::int)
            and locks.name >= %(prefix)s::text
            and locks.name < %(prefix_end)s::text
          order by locks.name, locks.slot
          limit %(limit)s::int)
         union all
        (select locks.*
           from rota.locks
          where %(include_free)s::boolean
            and (%(name)s::text is null or locks.name = %(name)s::text)
            and (locks.name, locks.slot) > (%(after_name)s::text, %(after_permit)s::int)
            and locks.name >= %(prefix)s::text
            and locks.name < %(prefix_end)s::text
          order by locks.name, locks.slot
          limit %(limit)s::int)) as found
 order by found.name, found.slot
 limit %(limit)s::int
