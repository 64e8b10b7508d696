-- How many completions were refused within so many seconds, on which host; without those of which somebody has said by
-- hand that they have been seen to.
select refusals.host, sum(refusals.jobs)::bigint
  from rota.refusals
 where refusals.at > rota.clock() - make_interval(secs => %(within)s::float8)
   and not exists (select
                     from rota.alerts
                    where alerts.kind = 'completions refused'
                      and alerts.subject = refusals.host
                      and alerts.closed_by is not null
                      and alerts.cleared >= refusals.at)
 group by refusals.host
