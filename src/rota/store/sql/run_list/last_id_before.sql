-- Return the highest id assigned before a time, approximately: later starts have larger ids, except those in progress
-- at that moment. Binary search over the primary key of jobs, or of runs if there are no jobs.
with recursive half (low, high, steps) as (
    select 0::bigint, 1 + greatest((select jobs.id from rota.jobs order by jobs.id desc limit 1),
                                   (select runs.id from rota.runs order by runs.id desc limit 1), 0), 0
     union all
    select case when next.created < %(at)s::timestamptz then middle.id else half.low end,
           case when next.created < %(at)s::timestamptz then half.high else middle.id end, half.steps + 1
      from half
     cross join lateral (select half.low + (half.high - half.low) / 2 as id) as middle
      left join lateral (
           select first.created
             from ((select jobs.id, jobs.created from rota.jobs where jobs.id >= middle.id order by jobs.id limit 1)
                    union all
                   (select runs.id, runs.created from rota.runs where runs.id >= middle.id order by runs.id limit 1))
                  as first
            order by first.id
            limit 1) as next on true
     where half.high - half.low > 1 and half.steps < 64
)
select half.low from half order by half.steps desc limit 1
