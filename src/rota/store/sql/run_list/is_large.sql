-- Whether more jobs are ready, in all or in one queue, than are worth reading to find a few; and the last id given.
select (select count(*) > %(limit)s::int
          from (select
                  from rota.queued
                 where %(queue)s::text is null or queued.queue = %(queue)s::text
                 limit %(limit)s::int + 1) as counted),
       (select ids.last_value from rota.ids)
