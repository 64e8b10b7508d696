-- Which jobs this worker holds that somebody wished to cancel.
select cancels.job
  from rota.cancels
  join rota.claims on cancels.job = any(claims.jobs)
 where claims.worker = %(worker)b::bigint
