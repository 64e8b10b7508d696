-- What people did by hand, the last first.
select audit.id, audit.at, audit.who, audit.action, audit.subject, audit.detail
  from rota.audit
 order by audit.id desc
 limit %(limit)s::int
