-- Attempts of a run that were not the last one, the first first.
select attempts.attempt, attempts.state::text, attempts.worker, attempts.at, attempts.seconds, attempts.error
  from rota.attempts
 where attempts.job = %(run)s::bigint
 order by attempts.attempt, attempts.at
