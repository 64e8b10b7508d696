-- Return the payload of a run's signal. No row: it has not been sent.
select signals.payload::text
  from rota.signals
 where signals.run = %(run)s::bigint
   and signals.name = %(name)s::text
   and signals.at is not null
