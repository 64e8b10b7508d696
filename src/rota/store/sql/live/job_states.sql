-- Where these jobs are: in which state, with which worker, and how many there; jobs that are not known are not counted.
select state.state, state.worker, count(*) as jobs
  from rota.job_state as state
 where state.job = any(%(jobs)s::bigint[])
 group by state.state, state.worker
 order by state.state, state.worker
