-- What people did by hand, the last first, before an id.
select audit.id, audit.at, audit.who, audit.action, audit.subject, audit.detail
  from rota.audit
 where audit.id < %(before)s::bigint
 order by audit.id desc
 limit %(limit)s::int
