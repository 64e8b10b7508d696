-- Return a run of a flow, or of a job's calls.
select run.id, coalesce(run.flow, ''), state.state, state.attempt, run.created, state.since, run.key, run.parent,
       run.forked_from, run.input, outcome.at, cardinality(run.jobs)
  from rota.runs as run
  join rota.run_state as state on state.run = run.id and state.is_flow
  left join rota.outcomes as outcome on outcome.job = run.id
 where run.id = %(run)s::bigint
