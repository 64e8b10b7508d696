-- Return open alerts, newest first; with `include_closed`, closed ones after them. Each with its acknowledgement (end
-- and operator), and the operator that closed it, if any.
select listed.id, listed.kind, listed.subject, listed.message, listed.raised, listed.cleared, listed.host, listed.pid,
       case when listed.acknowledged_until > rota.clock() then listed.acknowledged_until end,
       case when listed.acknowledged_until > rota.clock() then listed.acknowledged_by end,
       listed.closed_by
  from ((select alerts.*
           from rota.alerts
          where alerts.cleared is null
          order by alerts.id desc
          limit %(limit)s::int)
         union all
        (select alerts.*
           from rota.alerts
          where %(include_closed)s::boolean
            and alerts.cleared is not null
          order by alerts.id desc
          limit %(limit)s::int)) as listed
 order by listed.cleared is not null, listed.id desc
 limit %(limit)s::int
