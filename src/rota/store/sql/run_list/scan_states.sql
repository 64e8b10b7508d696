-- Return runs in given states between two ids, latest first; reversed, earliest first. They are read from the tables
-- that hold these states, because failed or running ones are rare among all runs. `scan_limit` rows of each table are
-- examined, until `limit` are found.
--
-- If fewer than `limit` are found and the search stopped early, the last row has no kind and contains the last id
-- examined. Without such a row, there are no more.
with there as materialized (
    select place.job, place.rank, place.fits
      from ((select ended.job, row_number() over (order by ended.job desc /*|asc*/) as rank, true as fits
               from rota.outcomes as ended
              where 'failed' = any(%(states)s::text[])
                and ended.state = 'failed'
                and ended.job < %(before)s::bigint
                and ended.job > %(after)s::bigint
              order by ended.job desc /*|asc*/
              limit %(scan_limit)s::int)
             union all
            (select ended.job, row_number() over (order by ended.job desc /*|asc*/), true
               from rota.outcomes as ended
              where 'cancelled' = any(%(states)s::text[])
                and ended.state = 'cancelled'
                and ended.job < %(before)s::bigint
                and ended.job > %(after)s::bigint
              order by ended.job desc /*|asc*/
              limit %(scan_limit)s::int)
             union all
            (select ended.job, row_number() over (order by ended.job desc /*|asc*/), true
               from rota.outcomes as ended
              where 'expired' = any(%(states)s::text[])
                and ended.state = 'expired'
                and ended.job < %(before)s::bigint
                and ended.job > %(after)s::bigint
              order by ended.job desc /*|asc*/
              limit %(scan_limit)s::int)
             union all
            -- Most finished runs have succeeded, so all outcomes are examined.
            (select ended.job, row_number() over (order by ended.job desc /*|asc*/), ended.state = 'succeeded'
               from rota.outcomes as ended
              where 'succeeded' = any(%(states)s::text[])
                and ended.job < %(before)s::bigint
                and ended.job > %(after)s::bigint
              order by ended.job desc /*|asc*/
              limit %(scan_limit)s::int)
             union all
            (select sleeping.job, row_number() over (order by sleeping.job desc /*|asc*/), true
               from rota.sleeping
              where 'sleeping' = any(%(states)s::text[])
                and sleeping.job < %(before)s::bigint
                and sleeping.job > %(after)s::bigint
              order by sleeping.job desc /*|asc*/
              limit %(scan_limit)s::int)
             union all
            (select quarantine.job, row_number() over (order by quarantine.job desc /*|asc*/), true
               from rota.quarantine
              where 'quarantined' = any(%(states)s::text[])
                and quarantine.job < %(before)s::bigint
                and quarantine.job > %(after)s::bigint
              order by quarantine.job desc /*|asc*/
              limit %(scan_limit)s::int)
             union all
            (select member.job, row_number() over (order by member.job desc /*|asc*/), true
               from rota.claims
              cross join lateral unnest(claims.jobs) as member (job)
              where 'running' = any(%(states)s::text[])
                and member.job < %(before)s::bigint
                and member.job > %(after)s::bigint
              order by member.job desc /*|asc*/
              limit %(scan_limit)s::int)
             union all
            -- Open runs are in `waiting` until their jobs have finished.
            (select waiting.job, row_number() over (order by waiting.job desc /*|asc*/), true
               from rota.waiting
              where 'running' = any(%(states)s::text[])
                and waiting.job < %(before)s::bigint
                and waiting.job > %(after)s::bigint
              order by waiting.job desc /*|asc*/
              limit %(scan_limit)s::int)
             union all
            -- Only if few jobs are queued; otherwise they are searched among all jobs.
            (select few.job, row_number() over (order by few.job desc /*|asc*/), true
               from (select queued.job
                       from rota.queued
                      where 'queued' = any(%(states)s::text[])
                        and (%(queue)s::text is null or queued.queue = %(queue)s::text)
                        and queued.job < %(before)s::bigint
                        and queued.job > %(after)s::bigint
                      order by queued.job desc /*|asc*/
                      limit %(scan_limit)s::int) as few)) as place
),
-- The first id at which the search of a table stopped. Rows of other tables beyond it are left for the next page.
edge as materialized (
    select max /*|min*/ (there.job) as id from there where there.rank = %(scan_limit)s::int
),
page as materialized (
    select there.job as id, job.id is null as is_flow
      from there
      left join lateral (
           select jobs.id, jobs.run, jobs.created, jobs.task, jobs.queue, jobs.key, jobs.args
             from rota.jobs
            where jobs.id = there.job
           offset 0) as job on true
      left join lateral (
           select runs.id, runs.created, runs.flow, runs.key, runs.input
             from rota.runs
            where job.id is null
              and runs.id = there.job
              and runs.flow is not null
              and runs.parent is null
           offset 0) as run on true
     where there.fits
       and there.job >= /*|<=*/ coalesce((select edge.id from edge), 0 /*|9223372036854775807*/)
       and (job.id is not null and job.run is null or run.id is not null)
       and (%(name)s::text is null or coalesce(job.task, run.flow) = %(name)s::text)
       and (%(queue)s::text is null or job.queue = %(queue)s::text)
       and (%(key)s::text is null or coalesce(job.key, run.key) = %(key)s::text)
       and (%(since)s::timestamptz is null or coalesce(job.created, run.created) >= %(since)s::timestamptz)
       and (%(until)s::timestamptz is null or coalesce(job.created, run.created) < %(until)s::timestamptz)
       and (%(text)s::text is null
            or position(%(text)s::text in lower(coalesce(job.task, run.flow))) > 0
            or position(%(text)s::text in lower(coalesce(job.key, run.key))) > 0
            or %(search_values)s::boolean
               and (pg_column_size(coalesce(job.args, run.input)) <= %(max_bytes)s::int
                    and position(%(text)s::text in lower(coalesce(job.args, run.input)::text)) > 0
                    or (select pg_column_size(ended.error) <= %(max_bytes)s::int
                               and position(%(text)s::text in lower(ended.error::text)) > 0
                          from rota.outcomes as ended
                         where ended.job = job.id)))
     order by there.job desc /*|asc*/
     limit %(limit)s::int
)
select page.id, page.is_flow from page
 union all
select edge.id, null
  from edge
 where edge.id is not null
   and (select count(*) from page) < %(limit)s::int
