-- Count the jobs of a queue by state.
select state.state, count(*) as jobs
  from rota.job_state as state
 where state.queue = %(queue)s::text
 group by state.state
 order by state.state
