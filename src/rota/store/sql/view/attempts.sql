-- Return the attempts of a run except the last one, earliest first.
select attempts.attempt, attempts.state::text, attempts.worker, attempts.at, attempts.seconds, attempts.error
  from rota.attempts
 where attempts.job = %(run)s::bigint
 order by attempts.attempt, attempts.at
