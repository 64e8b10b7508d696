-- The run of a job's calls with this number, if it has made them already: what was called, in which of its
-- attempts, what the run came to if it has ended, and whether something in it has failed if not. No row: it has
-- not.
select run.id, run.input ->> 'calls', coalesce(outcome.attempt, waiting.attempt), outcome.state::text,
       coalesce(waiting.failed > 0, false)
  from rota.runs as run
  left join rota.outcomes as outcome on outcome.job = run.id
  left join rota.waiting on waiting.job = run.id
 where run.parent = %(parent)s::bigint
   and run.number = %(call_number)s::int
