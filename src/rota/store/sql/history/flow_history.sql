-- Of each of these flows, what its last so many runs came to, how long those took from start to end that succeeded, and when
-- the last was started. A flow that has none has no row.
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
