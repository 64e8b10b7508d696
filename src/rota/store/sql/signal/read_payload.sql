-- What was said to a run under a name. No row: nothing, so far.
select signals.payload::text
  from rota.signals
 where signals.run = %(run)s::bigint
   and signals.name = %(name)s::text
   and signals.at is not null
