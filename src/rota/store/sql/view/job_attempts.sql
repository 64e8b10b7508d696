-- Return the attempts at the jobs of a run, or at some of them, except the last one of each; by job, earliest first.
-- Errors only with `with_errors`, because they may be long.
select attempts.job, attempts.attempt, attempts.state::text, attempts.worker, attempts.at, attempts.seconds,
       case when %(with_errors)s::boolean then attempts.error end
  from rota.runs as run
  join rota.attempts on attempts.job = any(coalesce(%(jobs)s::bigint[], run.jobs))
 where run.id = %(run)s::bigint
 order by attempts.job, attempts.attempt, attempts.at
