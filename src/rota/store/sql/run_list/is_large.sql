-- Return true if more than `limit` jobs are queued, in total or in one queue, so that reading them all to find a few
-- is not worthwhile; and the highest id assigned.
select (select count(*) > %(limit)s::int
          from (select
                  from rota.queued
                 where %(queue)s::text is null or queued.queue = %(queue)s::text
                 limit %(limit)s::int + 1) as counted),
       (select ids.last_value from rota.ids)
