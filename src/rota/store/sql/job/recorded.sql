-- Which of these jobs have an outcome recorded under one of these claims: a completion whose answer
-- was lost and that is sent again has been accepted already.
select outcomes.job
  from rota.outcomes
 where outcomes.job = any(%(jobs)s::bigint[])
   and outcomes.claim = any(%(claims)s::bigint[])
 union
select attempts.job
  from rota.attempts
 where attempts.job = any(%(jobs)s::bigint[])
   and attempts.claim = any(%(claims)s::bigint[])
