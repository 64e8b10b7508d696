-- Return for each host the number of outcomes refused within `window_seconds`. Leave out those refused before an
-- operator closed the alert of the host.
select refused_outcomes.host, sum(refused_outcomes.jobs)::bigint
  from rota.refused_outcomes
 where refused_outcomes.at > rota.clock() - make_interval(secs => %(window_seconds)s::float8)
   and not exists (select
                     from rota.alerts
                    where alerts.kind = 'completions refused'
                      and alerts.subject = refused_outcomes.host
                      and alerts.closed_by is not null
                      and alerts.cleared >= refused_outcomes.at)
 group by refused_outcomes.host
