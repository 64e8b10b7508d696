-- Return the run of a job's calls with this number: the names called, the attempt, the outcome if it has finished, and
-- true if a job in an open run has failed. No row: the job has not made these calls.
select run.id, run.input ->> 'calls', coalesce(outcome.attempt, waiting.attempt), outcome.state::text,
       coalesce(waiting.failed > 0, false)
  from rota.runs as run
  left join rota.outcomes as outcome on outcome.job = run.id
  left join rota.waiting on waiting.job = run.id
 where run.parent = %(parent)s::bigint
   and run.number = %(call_number)s::int
