-- Advance schedules to their next tick, unless another transaction has advanced them since they were read. Returns the
-- number advanced.
with moved as (
    update rota.schedules
       set next = given.next, due = given.due, queued = given.queued, ticks = given.ticks, runs = given.runs,
           missed = schedules.missed + given.missed, last = coalesce(given.last, schedules.last),
           run = coalesce(given.run, schedules.run), reason = null,
           state = case when schedules.state = 'active' and given.next is null and given.queued is null
                        then 'ended' else schedules.state end
      from unnest(%(names)s::text[], %(expected_nexts)s::timestamptz[], %(nexts)s::timestamptz[],
                  %(dues)s::timestamptz[],
                  %(queueds)s::timestamptz[], %(ticks)s::bigint[], %(runs)s::bigint[], %(lasts)s::timestamptz[],
                  %(last_runs)s::bigint[], %(expected_queueds)s::timestamptz[], %(missed)s::bigint[])
           as given (name, old, next, due, queued, ticks, runs, last, run, wait, missed)
     where schedules.name = given.name
       and schedules.next is not distinct from given.old
       and schedules.queued is not distinct from given.wait
    returning schedules.name
)
select count(*) from moved
