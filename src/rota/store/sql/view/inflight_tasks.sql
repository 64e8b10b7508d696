-- How many jobs of each task have not ended, and how many of them are in quarantine.
select place.task, count(*)::int, count(*) filter (where place.aside)::int
  from (select ready.task, false as aside from rota.ready
         union all
        select asleep.task, false from rota.asleep
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
