-- Return the signals of a run, earliest first, and those that a job waits for and that were not sent; at most `limit`
-- (null: all). Full payloads only with `with_values`.
select signals.name, signals.at, left(signals.payload::text, 200),
       case when %(with_values)s::boolean then signals.payload end, signals.jobs
  from rota.signals
 where signals.run = %(run)s::bigint
 order by signals.at, signals.name
 limit %(limit)s::int
