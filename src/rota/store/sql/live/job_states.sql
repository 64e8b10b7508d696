-- Count these jobs by state and worker. Unknown jobs are not counted.
select state.state, state.worker, count(*) as jobs
  from rota.job_state as state
 where state.job = any(%(jobs)s::bigint[])
 group by state.state, state.worker
 order by state.state, state.worker
