-- Rates by name, after a name: how far apart things are, how many are used up and not yet made up for, and when all are.
select rates.name, rates.apart,
       greatest(extract(epoch from rates.due - rota.clock())::float8, 0) / rates.apart as used, rates.due, rates.seen
  from rota.rates
 where rates.name > %(after)s::text
 order by rates.name
 limit %(limit)s::int
