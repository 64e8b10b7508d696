-- How many jobs are before one that is ready: in lanes above it, and before it in its own. So many are counted and no
-- more. `seq` is null: it is not where it would be looked for, far behind or on its way.
select job.id, place.seq, ahead.many
  from rota.jobs as job
  left join lateral (
       (select ready.seq
          from rota.ready
         where ready.queue = job.queue and ready.lane = job.lane and ready.seq = job.id and ready.job = job.id)
        union all
       (select ready.seq from rota.ready where ready.lost < 0 and ready.job = job.id)
        union all
       (select behind.seq
          from (select ready.seq, ready.job
                  from rota.ready
                 where ready.queue = job.queue and ready.lane = job.lane and ready.seq > job.id
                 order by ready.seq
                 limit %(far)s::int) as behind
         where behind.job = job.id)
       limit 1) as place on true
 cross join lateral (
       select count(*)::int as many
         from ((select from rota.ready where ready.queue = job.queue and ready.lane > job.lane limit %(most)s::int)
                union all
               (select from rota.ready
                 where ready.queue = job.queue and ready.lane = job.lane and ready.seq < coalesce(place.seq, 0)
                 limit %(most)s::int)
               limit %(most)s::int) as counted) as ahead
 where job.id = any(%(jobs)s::bigint[])
