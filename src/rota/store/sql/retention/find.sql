-- Find finished runs that are older than their retention, in the order of ids, starting after an id. Changes nothing.
--
-- Examines at most `limit` outcomes, and runs of at most `limit` jobs in total, or one larger run. Returns the last id
-- examined, whether there are more, the runs with the times they finished, and their numbers by queue and outcome. A
-- run with jobs in several queues is counted under no queue.
--
-- `retention` is seconds by queue and outcome; the entry '' is for all other queues. `min_age` is the smallest of
-- them. Ids rise with time, so the search ends at rows created within `min_age`. This is not exact, so a batch is
-- processed as long as anything in it is older.
with known as materialized (
    select weighed.*,
           -- The first run is examined even if it exceeds the limit.
           weighed.total <= %(limit)b::int or weighed.total = weighed.weight as looked
      from (select seen.job as id, seen.state, seen.at, what.whole, what.name, what.key, what.queue,
                   what.parent, what.successors, what.jobs,
                   coalesce(what.created, seen.at)
                   <= (select rota.clock() - make_interval(secs => %(min_age)b::float8)) as aged,
                   what.weight,
                   coalesce(sum(what.weight) over (order by seen.job rows unbounded preceding), 0) as total
              from (select outcomes.job, outcomes.state, outcomes.at
                      from rota.outcomes
                     where outcomes.job > %(after)b::bigint
                     order by outcomes.job
                     limit %(limit)b::int) as seen
             -- `limit` forces one index look-up per row, independent of the table's statistics.
              left join lateral (
                   select jobs.created, jobs.run is null as whole, jobs.task as name, jobs.key, jobs.queue,
                          null::bigint as parent, null::bigint[] as successors, null::bigint[] as jobs,
                          -- A job of a larger run has weight 0: it is removed with its run.
                          case when jobs.run is null then 1 else 0 end as weight
                     from rota.jobs
                    where jobs.id = seen.job
                    union all
                   select runs.created, true, runs.flow, runs.key, null, runs.parent, runs.successors,
                          runs.jobs, greatest(cardinality(runs.jobs), 1)
                     from rota.runs
                    where runs.id = seen.job
                    limit 1
                   ) as what on true) as weighed
),
due as materialized (
    select known.id, known.at, known.state, kept.queue, coalesce(cardinality(known.jobs), 1) as jobs
      from known
     cross join lateral (
           select known.queue, (coalesce(%(retention)s::jsonb -> known.queue, %(retention)s::jsonb -> '')
                                ->> known.state::text)::float8 as age
            where known.jobs is null
            union all
           -- The longest retention among the queues of its jobs.
           select case when min(job.queue) = max(job.queue) then min(job.queue) end,
                  max((coalesce(%(retention)s::jsonb -> job.queue, %(retention)s::jsonb -> '')
                       ->> known.state::text)::float8)
             from (select job.queue
                     from unnest(known.jobs) as member (job)
                    cross join lateral (
                          select jobs.queue from rota.jobs where jobs.id = member.job offset 0
                          ) as job
                    union all
                   select null where cardinality(known.jobs) = 0) as job
           having known.jobs is not null
            limit 1
           ) as kept
     where known.whole
       and known.looked
       and known.at <= (select rota.clock() - make_interval(secs => %(min_age)b::float8))
       and date_part('epoch', rota.clock() - known.at) >= kept.age
       -- Child runs of an open job are kept: the job reads them again in its next attempt.
       and (known.parent is null
            or (select jobs.id from rota.jobs where jobs.id = known.parent) is null
            or (select outcomes.job from rota.outcomes where outcomes.job = known.parent) is not null)
       -- A part of a run is removed after the run, which must not be found without its parts.
       and (known.successors is null
            or (select count(*)
                  from unnest(known.successors) as child (run)
                 cross join lateral (
                       select runs.id from rota.runs where runs.id = child.run offset 0
                       ) as whole) = 0)
       -- Its successors are not released yet.
       and (not exists (select from rota.pending_releases)
            or (select pending_releases.job from rota.pending_releases where pending_releases.job = known.id) is null)
       -- Its key is still reserved for a period.
       and (known.key is null
            or (select keys.run
                  from rota.keys
                 where keys.task = known.name
                   and keys.key = known.key
                   and keys.run = known.id
                   and keys.expires > rota.clock()
                   and not keys.while_open) is null)
)
select coalesce(max(known.id) filter (where known.looked and known.aged), %(after)b::bigint),
       coalesce(bool_or(known.looked and known.aged), false)
       and (count(*) = %(limit)b::int or bool_or(not known.looked)),
       array(select due.id from due order by due.id)::text,
       array(select due.at from due order by due.id)::text,
       (select coalesce(json_agg(line), '[]')
          from (select due.queue, due.state as outcome, count(*) as runs, sum(due.jobs) as jobs
                  from due
                 group by due.queue, due.state) as line)
  from known
