-- Return the last runs of a flow, latest first, without child runs.
select last.id, coalesce(ended.state::text, 'running'), coalesce(ended.attempt, waits.attempt, 1), last.created,
       ended.at, last.key
  from (select runs.id, runs.created, runs.key
          from rota.runs
         where runs.flow = %(flow)s::text
           and runs.flow is not null
           and runs.parent is null
         order by runs.id desc
         limit %(limit)s::int) as last
  left join lateral (
       select outcomes.state, outcomes.attempt, outcomes.at
         from rota.outcomes
        where outcomes.job = last.id
       offset 0) as ended on true
  left join lateral (
       select waiting.attempt from rota.waiting where waiting.job = last.id offset 0) as waits on true
 order by last.id desc
