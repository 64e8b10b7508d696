-- Count the unfinished jobs of each task, and those of them in quarantine.
select place.task, count(*)::int, count(*) filter (where place.aside)::int
  from (select queued.task, false as aside from rota.queued
         union all
        select sleeping.task, false from rota.sleeping
         union all
        select waiting.task, false from rota.waiting where waiting.task is not null
         union all
        select quarantine.task, true from rota.quarantine
         union all
        select held.task, false
          from rota.claims
         cross join lateral unnest(claims.jobs) as member (job)
         cross join lateral (
               select jobs.task from rota.jobs where jobs.id = member.job offset 0) as held) as place
 group by place.task
 order by place.task
