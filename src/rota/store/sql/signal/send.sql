-- Send a signal to a run. Returns sent, known or ended; null if there is no such run.
select rota.signal(%(run)s::bigint, %(name)s::text, %(payload)s::text::json)
