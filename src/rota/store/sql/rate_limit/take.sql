-- Reserve the earliest time at which `count` more permits are available, unless that is later than `max_wait`. Returns
-- the seconds until then, and true if they were reserved. No row: another transaction is inserting the rate limit;
-- resend.
--
--   usage         the distance from now to `refilled_at`, in seconds. It may reach the value of the burst without a
--                 wait; beyond that, the caller waits
--   new interval  if the interval has changed, the number of used permits is kept, not the seconds
--   clock         if `last_used` is more than five seconds ahead, the clock was set back: the usage of that time is
--                 kept. Less is no sign of it, because a statement's time is from before it waited for the row lock
with known as materialized (
    select rate_limits.refilled_at, rate_limits.interval_seconds, rate_limits.last_used
      from rota.rate_limits
     where rate_limits.name = %(name)s::text
       for no key update
),
used as (
    select greatest(extract(epoch from known.refilled_at
                   - case when known.last_used > rota.clock() + interval '5 seconds'
                                                        then known.last_used else rota.clock() end)::float8, 0)
           * (%(interval)s::float8 / known.interval_seconds) as before,
           known.last_used > rota.clock() + interval '5 seconds' as put_back,
           known.interval_seconds <> %(interval)s::float8 as changed
      from known
),
asked as (
    select used.before, used.before + %(count)s::int * %(interval)s::float8 as after, used.put_back, used.changed,
           greatest(used.before + (%(count)s::int - %(burst)s::int) * %(interval)s::float8, 0) as delay
      from used
),
taken as (
    update rota.rate_limits
       set refilled_at = rota.clock() + make_interval(secs => case when asked.delay <= %(max_wait)s::float8
                                                           then asked.after else asked.before end),
           interval_seconds = %(interval)s::float8,
           last_used = case when asked.put_back then rota.clock() else greatest(rate_limits.last_used, rota.clock()) end
      from asked
     where rate_limits.name = %(name)s::text
       and (asked.delay <= %(max_wait)s::float8 or asked.put_back or asked.changed)
),
made as (
    insert into rota.rate_limits (name, refilled_at, interval_seconds, last_used)
    select %(name)s, rota.clock() + make_interval(secs => %(count)s::int * %(interval)s::float8),
           %(interval)s::float8, rota.clock()
     where not exists (select from known)
    on conflict do nothing
    returning 0::float8 as delay
)
select asked.delay, asked.delay <= %(max_wait)s::float8 from asked
 union all
select made.delay, true from made
