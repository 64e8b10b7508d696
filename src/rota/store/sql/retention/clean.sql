-- Delete old rows, at most `limit` of each kind: closed alerts, audit rows, refused outcomes, unused rate limits,
-- locks that were free for long, and finished schedules that were created at run time, with their ticks. Returns the
-- numbers deleted, and the last rate limit and lock that were examined; empty if there are no more. Rows locked by
-- another transaction are skipped and kept.
--
-- A rate limit that is fully refilled holds no information. Deleting a lock's row is safe: all tokens come from one
-- sequence, so the next one is larger anyway.
with old_alerts as (
    delete from rota.alerts
     where alerts.id = any(array(
           select over.id
             from rota.alerts as over
            where over.cleared < rota.clock() - make_interval(secs => %(alert_retention)s::float8)
            order by over.cleared
            limit %(limit)s::int
              for update skip locked))
    returning 1
),
old_audit as (
    delete from rota.audit
     where audit.id = any(array(
           select first.id
             from (select audit.id, audit.at from rota.audit order by audit.id limit %(limit)s::int) as first
            where first.at < rota.clock() - make_interval(secs => %(audit_retention)s::float8)))
    returning 1
),
old_refusals as (
    delete from rota.refused_outcomes
     where refused_outcomes.ctid = any(array(
           select past.ctid
             from rota.refused_outcomes as past
            where past.at < rota.clock() - interval '1 day'
            order by past.at
            limit %(limit)s::int
              for update skip locked))
    returning 1
),
rate_page as materialized (
    select rate_limits.name, rate_limits.refilled_at, rate_limits.last_used
      from rota.rate_limits
     where rate_limits.name > %(last_rate_limit)s::text
     order by rate_limits.name
     limit %(limit)s::int
),
old_rates as (
    delete from rota.rate_limits
     where rate_limits.name = any(array(
           select idle.name
             from rate_page
            cross join lateral (
                  select rate_limits.name
                    from rota.rate_limits
                   where rate_limits.name = rate_page.name
                     and greatest(rate_limits.refilled_at, rate_limits.last_used) < rota.clock() - interval '1 day'
                     for update skip locked
                  ) as idle
            where greatest(rate_page.refilled_at, rate_page.last_used) < rota.clock() - interval '1 day'))
    returning 1
),
lock_page as materialized (
    select locks.name, locks.slot, coalesce(greatest(locks.acquired, locks.expires), '-infinity') as used
      from rota.locks
     where (locks.name, locks.slot) > (%(last_lock)s::text, %(last_permit)s::int)
     order by locks.name, locks.slot
     limit %(limit)s::int
),
old_locks as (
    delete from rota.locks
     using (select free.name, free.slot
              from lock_page
             cross join lateral (
                   select locks.name, locks.slot
                     from rota.locks
                    where locks.name = lock_page.name
                      and locks.slot = lock_page.slot
                      and coalesce(greatest(locks.acquired, locks.expires), '-infinity')
                          < rota.clock() - make_interval(secs => %(idle_retention)s::float8)
                      for update skip locked
                   ) as free
             where lock_page.used < rota.clock() - make_interval(secs => %(idle_retention)s::float8)) as idle
     where locks.name = idle.name
       and locks.slot = idle.slot
    returning 1
),
old_schedules as (
    delete from rota.schedules
     where schedules.name = any(array(
           select over.name
             from rota.schedules as over
            where over.state = 'ended'
              and not over.declared
              and coalesce(over.last, over.created) < rota.clock() - make_interval(secs => %(idle_retention)s::float8)
              and not exists (select
                                from rota.ticks
                               where ticks.schedule = over.name
                                 and ticks.run is not null
                                 and ticks.ended is null)
            order by coalesce(over.last, over.created)
            limit %(limit)s::int
              for update skip locked))
    returning schedules.name
),
old_ticks as (
    delete from rota.ticks using old_schedules where ticks.schedule = old_schedules.name
)
select (select count(*) from old_alerts), (select count(*) from old_audit), (select count(*) from old_refusals),
       (select count(*) from old_rates), (select count(*) from old_locks), (select count(*) from old_schedules),
       case when (select count(*) from rate_page) = %(limit)s::int
            then (select max(rate_page.name) from rate_page) else '' end,
       case when (select count(*) from lock_page) = %(limit)s::int
            then (select lock_page.name from lock_page order by lock_page.name desc, lock_page.slot desc limit 1)
            else '' end,
       case when (select count(*) from lock_page) = %(limit)s::int
            then (select lock_page.slot from lock_page order by lock_page.name desc, lock_page.slot desc limit 1)
            else -1 end
