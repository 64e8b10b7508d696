-- Return rate limits by name, after a name: the interval, the permits in use, and the time at which all are available
-- again.
select rate_limits.name, rate_limits.interval_seconds,
       greatest(extract(epoch from rate_limits.refilled_at - rota.clock())::float8, 0) / rate_limits.interval_seconds
       as used, rate_limits.refilled_at, rate_limits.last_used
  from rota.rate_limits
 where rate_limits.name > %(after)s::text
 order by rate_limits.name
 limit %(limit)s::int
