-- Return matching runs between two ids, latest first; reversed, earliest first. Jobs and runs are examined one by one
-- over their primary keys, up to `scan_limit`, until `limit` are found. Jobs of a run and child runs of a job are
-- excluded.
--
-- If fewer than `limit` are found and the search stopped early, the last row has no kind and contains the last id
-- examined. Without such a row, there are no more.
--
-- States are read in scalar subqueries, because the planner cannot turn these into a join that reads a whole table.
with task as materialized (
    select job.id
      from (select jobs.id, jobs.run, jobs.created, jobs.task, jobs.queue, jobs.key, jobs.args
              from rota.jobs
             where %(tasks)s::boolean
               and jobs.id < %(before)s::bigint
               and jobs.id > %(after)s::bigint
             order by jobs.id desc /*|asc*/
             limit %(scan_limit)s::int) as job
     where job.run is null
       and (%(name)s::text is null or job.task = %(name)s::text)
       and (%(queue)s::text is null or job.queue = %(queue)s::text)
       and (%(key)s::text is null or job.key = %(key)s::text)
       and (%(since)s::timestamptz is null or job.created >= %(since)s::timestamptz)
       and (%(until)s::timestamptz is null or job.created < %(until)s::timestamptz)
       and (%(text)s::text is null
            or position(%(text)s::text in lower(job.task)) > 0
            or position(%(text)s::text in lower(job.key)) > 0
            or %(search_values)s::boolean
               and (pg_column_size(job.args) <= %(max_bytes)s::int
                    and position(%(text)s::text in lower(job.args::text)) > 0
                    or (select pg_column_size(ended.error) <= %(max_bytes)s::int
                               and position(%(text)s::text in lower(ended.error::text)) > 0
                          from rota.outcomes as ended
                         where ended.job = job.id)))
       and (%(states)s::text[] is null
            or coalesce((select ended.state::text from rota.outcomes as ended where ended.job = job.id),
                        case when job.id in (select member.job
                                               from rota.claims
                                              cross join lateral unnest(claims.jobs) as member (job))
                                  then 'running'
                             when (select sleeping.job from rota.sleeping where sleeping.job = job.id) is not null
                                  then 'sleeping'
                             when (select quarantine.job from rota.quarantine where quarantine.job = job.id) is not null
                                  then 'quarantined'
                             else 'queued' end) = any(%(states)s::text[]))
     order by job.id desc /*|asc*/
     limit %(limit)s::int
),
flow as materialized (
    select run.id
      from (select runs.id, runs.created, runs.flow, runs.parent, runs.key, runs.input
              from rota.runs
             where %(flows)s::boolean
               and runs.id < %(before)s::bigint
               and runs.id > %(after)s::bigint
             order by runs.id desc /*|asc*/
             limit %(scan_limit)s::int) as run
     where run.flow is not null
       and run.parent is null
       and (%(name)s::text is null or run.flow = %(name)s::text)
       and (%(key)s::text is null or run.key = %(key)s::text)
       and (%(since)s::timestamptz is null or run.created >= %(since)s::timestamptz)
       and (%(until)s::timestamptz is null or run.created < %(until)s::timestamptz)
       and (%(text)s::text is null
            or position(%(text)s::text in lower(run.flow)) > 0
            or position(%(text)s::text in lower(run.key)) > 0
            or %(search_values)s::boolean
               and pg_column_size(run.input) <= %(max_bytes)s::int
               and position(%(text)s::text in lower(run.input::text)) > 0)
       and (%(states)s::text[] is null
            or coalesce((select ended.state::text from rota.outcomes as ended where ended.job = run.id),
                        'running') = any(%(states)s::text[]))
     order by run.id desc /*|asc*/
     limit %(limit)s::int
),
-- The id at which the first of the two searches stopped. Rows of the other search beyond it are left for the next
-- page, because the rows between are not known.
edge as materialized (
    select greatest /*|least*/ (case when (select count(*) from task) < %(limit)s::int then (
                         select jobs.id
                           from rota.jobs
                          where %(tasks)s::boolean
                            and jobs.id < %(before)s::bigint
                            and jobs.id > %(after)s::bigint
                          order by jobs.id desc /*|asc*/
                         offset %(scan_limit)s::int - 1
                          limit 1) end,
                    case when (select count(*) from flow) < %(limit)s::int then (
                         select runs.id
                           from rota.runs
                          where %(flows)s::boolean
                            and runs.id < %(before)s::bigint
                            and runs.id > %(after)s::bigint
                          order by runs.id desc /*|asc*/
                         offset %(scan_limit)s::int - 1
                          limit 1) end) as id
),
page as materialized (
    select found.id, found.is_flow
      from (select task.id, false as is_flow from task
             union all
            select flow.id, true from flow) as found
     where found.id >= /*|<=*/ (select edge.id from edge) or (select edge.id from edge) is null
     order by found.id desc /*|asc*/
     limit %(limit)s::int
)
select page.id, page.is_flow from page
 union all
select edge.id, null
  from edge
 where edge.id is not null
   and (select count(*) from page) < %(limit)s::int
