-- The state of a run; of a job of one, too. No row: there is none.
select state.state from rota.job_state as state where state.job = %(run)s::bigint
 union all
select state.state from rota.run_state as state where state.run = %(run)s::bigint and state.is_flow
