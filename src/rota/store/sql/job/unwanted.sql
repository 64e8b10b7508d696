-- Which jobs this worker holds that somebody wished to cancel: one look-up a job, and none where nobody wishes
-- anything.
select member.job
  from rota.claims
 cross join lateral unnest(claims.jobs) as member (job)
 cross join lateral (select from rota.cancels where cancels.job = member.job offset 0) as wish
 where claims.worker = %(worker)b::bigint
   and exists (select from rota.cancels)
