-- Count the jobs ahead of queued jobs: those of the queue with a higher priority, and those before it in its lane.
-- Counts stop at `limit`. `seq` is null if the job was not found: it is more than `scan_limit` rows behind its first
-- position, or another transaction is moving it.
select job.id, place.seq, ahead.many
  from rota.jobs as job
  left join lateral (
       (select queued.seq
          from rota.queued
         where queued.queue = job.queue and queued.priority = job.priority and queued.seq = job.id
           and queued.job = job.id)
        union all
       (select queued.seq from rota.queued where queued.suspicion is not null and queued.job = job.id)
        union all
       (select behind.seq
          from (select queued.seq, queued.job
                  from rota.queued
                 where queued.queue = job.queue and queued.priority = job.priority and queued.seq > job.id
                 order by queued.seq
                 limit %(scan_limit)s::int) as behind
         where behind.job = job.id)
       limit 1) as place on true
 cross join lateral (
       select count(*)::int as many
         from ((select from rota.queued
                 where queued.queue = job.queue and queued.priority > job.priority
                 limit %(limit)s::int)
                union all
               (select from rota.queued
                 where queued.queue = job.queue and queued.priority = job.priority
                   and queued.seq < coalesce(place.seq, 0)
                 limit %(limit)s::int)
               limit %(limit)s::int) as counted) as ahead
 where job.id = any(%(jobs)s::bigint[])
