-- Return the jobs that hold up a run, or one job of it. `root`: open jobs that wait for no other job of the run,
-- quarantined ones first, then sleeping ones, because other jobs are expected to proceed on their own. `near`: open
-- direct predecessors of the job. The last column is the number of rows without `limit`.
with recursive member as materialized (
    select job.id, job.successors
      from rota.runs as run
     cross join lateral unnest(run.jobs) as each (job)
      join rota.jobs as job on job.id = each.job
     where run.id = %(run)s::bigint
       and not exists (select from rota.outcomes where outcomes.job = job.id)
),
edge as materialized (
    select member.id as parent, child.job as child
      from member
     cross join lateral unnest(member.successors) as child (job)
),
above (job) as (
    select member.id from member where %(job)s::bigint is null or member.id = %(job)s::bigint
     union
    select edge.parent from above join edge on edge.child = above.job
),
root as materialized (
    select above.job,
           case when exists (select from rota.quarantine where quarantine.job = above.job) then 0
                when exists (select from rota.sleeping where sleeping.job = above.job) then 1
                else 2 end as place
      from above
     where not exists (select from rota.waiting where waiting.job = above.job)
)
(select root.job, true as root, false as near, count(*) over ()
   from root
  order by root.place, root.job
  limit %(limit)s::int)
 union all
(select edge.parent, false, true, count(*) over ()
   from edge
  where edge.child = %(job)s::bigint
  order by edge.parent
  limit %(limit)s::int)
