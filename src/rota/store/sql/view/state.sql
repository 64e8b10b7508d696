-- Return the state of a run, or of one of its jobs. No row: there is none.
select state.state from rota.job_state as state where state.job = %(run)s::bigint
 union all
select state.state from rota.run_state as state where state.run = %(run)s::bigint and state.is_flow
