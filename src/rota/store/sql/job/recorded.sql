-- Return the jobs with an outcome or attempt recorded under one of these claims. If the answer to a completion was lost
-- and the completion is sent again, these jobs were already accepted.
select outcomes.job
  from rota.outcomes
 where outcomes.job = any(%(jobs)s::bigint[])
   and outcomes.claim = any(%(claims)s::bigint[])
 union
select attempts.job
  from rota.attempts
 where attempts.job = any(%(jobs)s::bigint[])
   and attempts.claim = any(%(claims)s::bigint[])
