-- Which of these jobs have an outcome recorded under one of these claims: a completion whose answer
-- was lost and that is sent again has been accepted already.
select outcomes.job
  from rota.outcomes
 where outcomes.job = any(%(jobs)b::bigint[])
   and outcomes.claim = any(%(claims)b::bigint[])
 union
select attempts.job
  from rota.attempts
 where attempts.job = any(%(jobs)b::bigint[])
   and attempts.claim = any(%(claims)b::bigint[])
