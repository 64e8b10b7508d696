-- Create a schedule, unless the name exists. A schedule without a next tick is created as ended. Returns true if it
-- was created.
with made as (
    insert into rota.schedules (name, declared, kind, target, input, tenant, cron, tz, every, at, overlap, catch_up,
                                at_most,
                                grace, jitter, starts, ends, max_runs, pause_after, queue, anchor, next, due, state)
    values (%(name)s, %(declared)s, %(kind)s, %(target)s, %(input)s::json, %(tenant)s, %(cron)s, %(tz)s,
            %(every)s::float8,
            %(at)s::timestamptz, %(overlap)s, %(catch_up)s, %(at_most)s, %(grace)s::float8, %(jitter)s::float8,
            %(starts)s::timestamptz, %(ends)s::timestamptz, %(max_runs)s::bigint, %(pause_after)s::int, %(queue)s,
            %(anchor)s::timestamptz, %(next)s::timestamptz, %(due)s::timestamptz,
            case when %(next)s::timestamptz is null then 'ended' else 'active' end::rota.schedule_state)
    on conflict (name) do nothing
    returning schedules.name
)
select exists (select from made)
