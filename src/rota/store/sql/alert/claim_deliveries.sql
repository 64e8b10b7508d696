-- Take alerts of which somebody is to be told, for so many seconds: whoever does not say in time what came of it has
-- died of it, and another takes them. Answers each as it is now. Waits for nobody. What has been over for a day is
-- told to nobody any more.
with due as materialized (
    select alerts.id, alerts.cleared < rota.clock() - interval '1 day' as stale
      from rota.alerts
     where alerts.deliver_at <= rota.clock()
     order by alerts.deliver_at
     limit %(limit)s::int
       for update skip locked
),
taken as (
    update rota.alerts
       set deliver_at = case when due.stale then null else rota.clock() + make_interval(secs => %(lease_seconds)s::float8) end,
           delivery_attempts = alerts.delivery_attempts + 1
      from due
     where alerts.id = due.id
    returning alerts.*
)
select taken.id, taken.kind, taken.subject, taken.message, taken.raised, taken.cleared, taken.host, taken.pid,
       taken.closed_by, taken.delivered_to, taken.delivery_attempts, rota.clock()
  from taken
 where taken.deliver_at is not null
 order by taken.id
