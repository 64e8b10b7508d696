-- Count the quarantined jobs of each queue, with the oldest one and its task. Only the first 1,000 jobs are counted.
select aside.queue, count(*)::int, min(aside.job), (array_agg(aside.task order by aside.job))[1]
  from (select quarantine.queue, quarantine.task, quarantine.job
          from rota.quarantine
         order by quarantine.job
         limit 1000) as aside
 group by aside.queue
