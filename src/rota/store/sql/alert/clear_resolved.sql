-- Close the open alerts that are resolved, of all instances. Return them with true; and with false the alerts in
-- `kinds` and `subjects` that were not open, because another instance or an operator closed them. Skip locked rows.
--
--   lock held too long                 resolved when the lock is not held under the alert's token any more
--   renewals fail, token held twice    resolved when the lock is released or has a new token, or an hour after expiry
--   leader flaps                       resolved after a minute without an election
--
-- Alerts of other kinds are not changed.
with over as materialized (
    select alerts.id
      from rota.alerts
     where alerts.cleared is null
       and not case
               when alerts.kind in ('lock held too long', 'renewals fail', 'token held twice')
               then exists (select
                              from rota.locks
                             where locks.name in (alerts.subject, substring(alerts.subject from '^(.*) permit \d+$'))
                               and locks.token = alerts.token
                               and locks.instance is not null
                               and locks.expires > rota.clock() - case alerts.kind
                                                                  when 'lock held too long' then interval '0'
                                                                  else interval '1 hour'
                                                                  end)
               when alerts.kind = 'leader flaps'
               then exists (select
                              from rota.leaders
                             where leaders.name = alerts.subject
                               and leaders.elections[cardinality(leaders.elections)]
                                   > rota.clock() - interval '1 minute')
               else true
               end
       for update skip locked
),
closed as (
    update rota.alerts
       set cleared = rota.clock(), deliver_at = rota.clock(), delivery_attempts = 0
      from over
     where alerts.id = over.id
    returning alerts.kind, alerts.subject
)
select closed.kind, closed.subject, true as here
  from closed
 union all
select given.kind, given.subject, false
  from unnest(%(kinds)s::text[], %(subjects)s::text[]) as given (kind, subject)
 where not exists (select
                     from rota.alerts
                    where alerts.kind = given.kind
                      and alerts.subject = given.subject
                      and alerts.cleared is null)
