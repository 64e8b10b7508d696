-- Return the names of flows that have runs, sorted, at most `limit`. Each name is one index look-up.
with recursive known (name) as (
    (select runs.flow
       from rota.runs
      where runs.flow is not null
        and runs.parent is null
      order by runs.flow
      limit 1)
     union all
    select (select runs.flow
              from rota.runs
             where runs.flow > known.name
               and runs.flow is not null
               and runs.parent is null
             order by runs.flow
             limit 1)
      from known
     where known.name is not null
)
select known.name from known where known.name is not null limit %(limit)s::int
