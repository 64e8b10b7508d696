-- Attempts at the jobs of a run, or at some of them, that were not the last one, by job, the first first. What went wrong
-- only where asked: it may be long.
select attempts.job, attempts.attempt, attempts.state::text, attempts.worker, attempts.at, attempts.seconds,
       case when %(with_errors)s::boolean then attempts.error end
  from rota.runs as run
  join rota.attempts on attempts.job = any(coalesce(%(jobs)s::bigint[], run.jobs))
 where run.id = %(run)s::bigint
 order by attempts.job, attempts.attempt, attempts.at
