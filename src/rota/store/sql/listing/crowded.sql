-- Whether more jobs are ready, in all or in one queue, than are worth reading to find a few; and the last id given.
select (select count(*) > %(many)s::int
          from (select
                  from rota.ready
                 where %(queue)s::text is null or ready.queue = %(queue)s::text
                 limit %(many)s::int + 1) as counted),
       (select ids.last_value from rota.ids)
