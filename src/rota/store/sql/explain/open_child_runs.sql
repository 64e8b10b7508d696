-- Return the child runs that jobs have called and wait for, if they have not ended; also open flow runs that are parts
-- of `run`, a run of several calls.
select run.id, run.parent, coalesce(run.flow, '') as flow, run.created
  from rota.runs as run
 where run.parent = any(%(jobs)s::bigint[])
   and run.number is not null
   and not exists (select from rota.outcomes where outcomes.job = run.id)
 union all
select part.id, part.parent, coalesce(part.flow, ''), part.created
  from rota.runs as whole
  join rota.runs as part on part.parent = whole.parent and part.successors = array[whole.id]
 where whole.id = %(run)s::bigint
   and not exists (select from rota.outcomes where outcomes.job = part.id)
 order by 1
 limit %(limit)s::int
