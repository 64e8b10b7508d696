-- Say something to a run. Answers sent, known or ended; null: there is no such run.
select rota.signal(%(run)s::bigint, %(name)s::text, %(payload)s::text::json)
