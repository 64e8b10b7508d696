-- Which runs have ended and are older than `keep` says, going up from an id. Changes nothing.
--
-- Looks at no more than `most` outcomes, and at runs of no more than `most` jobs in all, or at one larger run.
-- Answers up to which id it has looked, whether there is more, the runs with the times they ended, and how
-- many there are of each queue and outcome; a run whose jobs are in several queues is under none of them.
--
-- `keep` is seconds by queue and outcome, those under '' for every other queue; `shortest` is the least of them.
-- What was created within that time is where it ends, since ids rise with time; not exactly, so a batch in
-- which anything is older is gone through.
with known as materialized (
    select weighed.*,
           -- The first is looked at whatever it weighs.
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
             -- One look-up each, whatever the statistics say: a limit leaves the planner no other way.
              left join lateral (
                   select jobs.created, jobs.run is null as whole, jobs.task as name, jobs.key, jobs.queue,
                          null::bigint as parent, null::bigint[] as successors, null::bigint[] as jobs,
                          -- A job of a larger run weighs nothing: it goes with its run.
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
           -- Of the queues of its jobs, the longest.
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
       -- Calls of an open job: it will ask for them if it is tried again.
       and (known.parent is null
            or (select jobs.id from rota.jobs where jobs.id = known.parent) is null
            or (select outcomes.job from rota.outcomes where outcomes.job = known.parent) is not null)
       -- A part of a run goes after it: the run must not be found without it.
       and (known.successors is null
            or (select count(*)
                  from unnest(known.successors) as child (run)
                 cross join lateral (
                       select runs.id from rota.runs where runs.id = child.run offset 0
                       ) as whole) = 0)
       -- Those who wait for it have not been told yet.
       and (not exists (select from rota.pending_releases)
            or (select pending_releases.job from rota.pending_releases where pending_releases.job = known.id) is null)
       -- Somebody asked for its key to be unique for a time.
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
