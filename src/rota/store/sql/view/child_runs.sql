-- Return the runs that the jobs of a run (or the job that is the run) have started, and flows that are parts of it,
-- with the starting job and the state. Earliest first, at most `limit` (null: all).
select run.id, run.parent, coalesce(run.flow, ''), state.state, cardinality(run.jobs)
  from (select coalesce(max(runs.jobs), '{}') as jobs, max(runs.parent) as parent
          from rota.runs
         where runs.id = %(run)s::bigint) as whole
  join rota.runs as run on run.parent = any(whole.jobs || %(run)s::bigint || whole.parent)
  join rota.run_state as state on state.run = run.id and state.is_flow
 where run.parent is distinct from whole.parent
    or run.successors = array[%(run)s::bigint]
 order by run.id
 limit %(limit)s::int
