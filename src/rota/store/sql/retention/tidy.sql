-- Remove, a bounded page of each: alerts that have been over for long, what people did by hand long ago, refusals of which
-- nobody asks any more, rates that are as if never used, locks that nobody has held for long, and schedules that were made
-- at run time and ended as long ago, with their ticks. Answers how many went, and up to which rate and lock it has looked;
-- empty: up to the last. Waits for nobody.
--
-- A rate whose time has come has nothing left to remember. A lock's next token is larger without its row, too: all
-- tokens come from one sequence. Who has one of their rows locked keeps it.
with old_alerts as (
    delete from rota.alerts
     where alerts.id = any(array(
           select over.id
             from rota.alerts as over
            where over.cleared < rota.clock() - make_interval(secs => %(alerts)s::float8)
            order by over.cleared
            limit %(most)s::int
              for update skip locked))
    returning 1
),
old_audit as (
    delete from rota.audit
     where audit.id = any(array(
           select first.id
             from (select audit.id, audit.at from rota.audit order by audit.id limit %(most)s::int) as first
            where first.at < rota.clock() - make_interval(secs => %(audit)s::float8)))
    returning 1
),
old_refusals as (
    delete from rota.refusals
     where refusals.ctid = any(array(
           select past.ctid
             from rota.refusals as past
            where past.at < rota.clock() - interval '1 day'
            order by past.at
            limit %(most)s::int
              for update skip locked))
    returning 1
),
rate_page as materialized (
    select rates.name, rates.due, rates.seen
      from rota.rates
     where rates.name > %(rate)s::text
     order by rates.name
     limit %(most)s::int
),
old_rates as (
    delete from rota.rates
     where rates.name = any(array(
           select idle.name
             from rate_page
            cross join lateral (
                  select rates.name
                    from rota.rates
                   where rates.name = rate_page.name
                     and greatest(rates.due, rates.seen) < rota.clock() - interval '1 day'
                     for update skip locked
                  ) as idle
            where greatest(rate_page.due, rate_page.seen) < rota.clock() - interval '1 day'))
    returning 1
),
lock_page as materialized (
    select locks.name, locks.slot, coalesce(greatest(locks.acquired, locks.expires), '-infinity') as used
      from rota.locks
     where (locks.name, locks.slot) > (%(lock)s::text, %(slot)s::int)
     order by locks.name, locks.slot
     limit %(most)s::int
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
                          < rota.clock() - make_interval(secs => %(free)s::float8)
                      for update skip locked
                   ) as free
             where lock_page.used < rota.clock() - make_interval(secs => %(free)s::float8)) as idle
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
              and coalesce(over.last, over.created) < rota.clock() - make_interval(secs => %(free)s::float8)
              and not exists (select
                                from rota.ticks
                               where ticks.schedule = over.name
                                 and ticks.run is not null
                                 and ticks.ended is null)
            order by coalesce(over.last, over.created)
            limit %(most)s::int
              for update skip locked))
    returning schedules.name
),
old_ticks as (
    delete from rota.ticks using old_schedules where ticks.schedule = old_schedules.name
)
select (select count(*) from old_alerts), (select count(*) from old_audit), (select count(*) from old_refusals),
       (select count(*) from old_rates), (select count(*) from old_locks), (select count(*) from old_schedules),
       case when (select count(*) from rate_page) = %(most)s::int
            then (select max(rate_page.name) from rate_page) else '' end,
       case when (select count(*) from lock_page) = %(most)s::int
            then (select lock_page.name from lock_page order by lock_page.name desc, lock_page.slot desc limit 1)
            else '' end,
       case when (select count(*) from lock_page) = %(most)s::int
            then (select lock_page.slot from lock_page order by lock_page.name desc, lock_page.slot desc limit 1)
            else -1 end
