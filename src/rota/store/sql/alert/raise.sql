-- Open alerts, at most one for each kind and subject. If it is open already, update its message, token and process.
-- Return each with true if it is new.
insert into rota.alerts (kind, subject, message, token, host, pid)
select given.kind, given.subject, given.message, given.token, %(host)s, %(pid)s
  from unnest(%(kinds)s::text[], %(subjects)s::text[], %(messages)s::text[], %(tokens)s::bigint[])
         as given (kind, subject, message, token)
on conflict (kind, subject) where cleared is null
do update set message = excluded.message, token = excluded.token, host = excluded.host, pid = excluded.pid
returning alerts.kind, alerts.subject, alerts.xmax = 0
