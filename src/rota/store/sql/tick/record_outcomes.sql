-- Record the outcomes of runs that these schedules started, and count consecutive failures; a schedule with too many
-- is paused. If a run was removed before its outcome was recorded, only its end is recorded. Outcomes of backfilled
-- ticks are recorded, but not counted as failures or successes.
--
-- An earlier statement has locked the schedules. Returns for each: true if it was paused now, and its open runs.
with ended as (
    update rota.ticks
       set outcome = over.state, ended = coalesce(over.at, rota.clock())
      from (select open.schedule, open.tick, outcomes.state, outcomes.at
              from rota.ticks as open
              left join rota.outcomes on outcomes.job = open.run
             where open.schedule = any(%(names)s::text[])
               and open.run is not null
               and open.ended is null
               and (outcomes.job is not null
                    or not (exists (select from rota.jobs where jobs.id = open.run)
                            or exists (select from rota.runs where runs.id = open.run)))
             union all
            -- The latest run had failed, was retried and has succeeded.
            select again.schedule, again.tick, outcomes.state, outcomes.at
              from rota.schedules
              join rota.ticks as again on again.schedule = schedules.name
                                      and again.tick = schedules.last
                                      and again.run = schedules.run
              join rota.outcomes on outcomes.job = again.run
             where schedules.name = any(%(names)s::text[])
               and again.outcome in ('failed', 'expired', 'cancelled')
               and outcomes.state = 'succeeded') as over
     where ticks.schedule = over.schedule
       and ticks.tick = over.tick
    returning ticks.schedule, ticks.tick, ticks.backfilled, ticks.outcome as state, ticks.ended as at
),
told as (
    select ended.schedule,
           max(ended.tick) filter (where ended.state = 'succeeded') as good,
           max(ended.at) filter (where ended.state = 'succeeded') as last_success,
           max(ended.at) filter (where ended.state in ('failed', 'expired')) as last_failure
      from ended
     where not ended.backfilled
     group by ended.schedule
),
counted as (
    select told.schedule, schedules.queued, told.last_success, told.last_failure, bad.many as failures,
           coalesce(schedules.state = 'active' and bad.many >= schedules.pause_after, false) as enough
      from told
      join rota.schedules on schedules.name = told.schedule
     cross join lateral (
           select case when told.good is null then schedules.failures else 0 end + count(*) as many
             from ended
            where ended.schedule = told.schedule
              and not ended.backfilled
              and ended.state in ('failed', 'expired')
              and (told.good is null or ended.tick > told.good)) as bad
),
noted as (
    update rota.schedules
       set last_success = coalesce(counted.last_success, schedules.last_success),
           last_failure = coalesce(counted.last_failure, schedules.last_failure),
           failures = counted.failures,
           state = case when counted.enough then 'paused' else schedules.state end,
           queued = case when not counted.enough then schedules.queued end,
           reason = case when counted.enough then counted.failures || ' failures in a row' else schedules.reason end
      from counted
     where schedules.name = counted.schedule
    returning schedules.name, counted.enough
),
given_up as (
    update rota.ticks
       set state = 'skipped', reason = 'the schedule was paused'
      from counted
     where counted.enough
       and ticks.schedule = counted.schedule
       and ticks.tick = counted.queued
)
select schedules.name,
       coalesce(noted.enough, false),
       array(select begun.run
               from (select ticks.run
                       from rota.ticks
                      where ticks.schedule = schedules.name
                        and ticks.run is not null
                        and ticks.ended is null
                        and not ticks.backfilled
                      union
                     select schedules.run) as begun
              where not exists (select from rota.outcomes where outcomes.job = begun.run)
                and (exists (select from rota.jobs where jobs.id = begun.run)
                     or exists (select from rota.runs where runs.id = begun.run))
              order by begun.run)
  from rota.schedules
  left join noted on noted.name = schedules.name
 where schedules.name = any(%(names)s::text[])
