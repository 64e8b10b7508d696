-- Close the open alerts of a kind, and of a subject if given, for an operator. Write one audit entry for each. Return
-- the closed alerts.
with closed as (
    update rota.alerts
       set cleared = rota.clock(), closed_by = %(operator)s, deliver_at = rota.clock(), delivery_attempts = 0
     where alerts.cleared is null
       and alerts.kind = %(kind)s::text
       and (%(subject)s::text is null or alerts.subject = %(subject)s::text)
    returning alerts.kind, alerts.subject, alerts.message
),
written as (
    insert into rota.audit (operator, action, subject, detail)
    select %(operator)s, 'close alert', closed.kind || ': ' || closed.subject,
           json_build_object('message', closed.message)
      from closed
)
select closed.kind, closed.subject from closed order by closed.subject
