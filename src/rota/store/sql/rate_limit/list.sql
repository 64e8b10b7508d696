-- Rates by name, after a name: how far apart things are, how many are used up and not yet made up for, and when all are.
select rate_limits.name, rate_limits.interval_seconds,
       greatest(extract(epoch from rate_limits.refilled_at - rota.clock())::float8, 0) / rate_limits.interval_seconds as used, rate_limits.refilled_at, rate_limits.last_used
  from rota.rate_limits
 where rate_limits.name > %(after)s::text
 order by rate_limits.name
 limit %(limit)s::int
