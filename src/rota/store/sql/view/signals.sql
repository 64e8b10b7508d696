-- What was said to a run, the first first, and what somebody has waited for and nobody said; at most `limit` of it
-- (null: all). In full only where asked.
select signals.name, signals.at, left(signals.payload::text, 200),
       case when %(with_values)s::boolean then signals.payload end, signals.jobs
  from rota.signals
 where signals.run = %(run)s::bigint
 order by signals.at, signals.name
 limit %(limit)s::int
