-- Acknowledge the open alerts of a kind, and of a subject if given, for `seconds`. Write one audit entry for each.
-- Return the acknowledged alerts.
with seen as (
    update rota.alerts
       set acknowledged = rota.clock(), acknowledged_until = rota.clock() + make_interval(secs => %(seconds)s::float8),
           acknowledged_by = %(operator)s
     where alerts.cleared is null
       and alerts.kind = %(kind)s::text
       and (%(subject)s::text is null or alerts.subject = %(subject)s::text)
    returning alerts.kind, alerts.subject, alerts.acknowledged_until
),
written as (
    insert into rota.audit (operator, action, subject, detail)
    select %(operator)s, 'acknowledge alert', seen.kind || ': ' || seen.subject,
           json_build_object('until', seen.acknowledged_until)
      from seen
)
select seen.kind, seen.subject from seen order by seen.subject
