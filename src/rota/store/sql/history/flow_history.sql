-- Return for each of these flows the outcomes of its last `run_limit` runs, the duration of the successful ones from
-- start to end, and the start of the last run. A flow without runs has no row.
select wanted.flow, count(*), count(*) filter (where ended.state is null),
       count(*) filter (where ended.state = 'succeeded'), count(*) filter (where ended.state in ('failed', 'expired')),
       count(*) filter (where ended.state = 'cancelled'),
       percentile_cont(0.5) within group (order by date_part('epoch', ended.at - last.created))
           filter (where ended.state = 'succeeded'),
       percentile_cont(0.95) within group (order by date_part('epoch', ended.at - last.created))
           filter (where ended.state = 'succeeded'),
       max(date_part('epoch', ended.at - last.created)) filter (where ended.state = 'succeeded'), max(last.created)
  from unnest(%(flows)s::text[]) as wanted (flow)
 cross join lateral (
       select runs.id, runs.created
         from rota.runs
        where runs.flow = wanted.flow
          and runs.flow is not null
          and runs.parent is null
        order by runs.id desc
        limit %(run_limit)s::int
       ) as last
  left join lateral (
       select outcomes.state, outcomes.at from rota.outcomes where outcomes.job = last.id offset 0) as ended on true
 group by wanted.flow
 order by wanted.flow
