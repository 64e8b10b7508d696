-- Start runs with all their jobs. Return for each run, in the order given, its id and true if it was created. If the
-- key of a run is taken, the id is that of the run that has the key.
--
-- The jobs of a run are consecutive in the arrays, after the `before` jobs of earlier runs. Jobs refer to each other by
-- their number within the run, from 1; 0 is the run itself. Jobs without predecessors are queued at once, or sleep
-- until the start time of their run. A run can be a part of an earlier run in the list, which then waits for it.
--
-- Child runs (`parent` is given) are started only if the claim still holds the parent job, the job has no cancel
-- request, and it has not yet made the call with this number. Else no row is returned. An earlier statement of the
-- transaction has locked the claim (`claim/lock`).
with fence as materialized (
    select true as open
     where %(parent)s::bigint is null
        or (exists (
            select from rota.claims
             where claims.id = %(claim)s::bigint
               and claims.worker = %(worker)s::bigint
               and %(parent)s::bigint = any(claims.jobs))
        and not exists (select from rota.cancels where cancels.job = %(parent)s::bigint)
        and not exists (
            select from rota.runs where runs.parent = %(parent)s::bigint and runs.number = %(call_number)s::int))
),
fresh as materialized (
    select nextval('rota.ids') as id, given.*
      from unnest(%(flows)b::text[], %(inputs)b::text[], %(open_jobs)s::int[], %(offsets)s::int[],
                  %(sizes)s::int[], %(part_of)s::int[], %(keys)b::text[], %(unique_fors)b::float8[],
                  %(unique_opens)s::boolean[], %(ats)b::timestamptz[], %(delays)b::float8[],
                  %(expires)b::timestamptz[], %(expires_ins)b::float8[],
                  %(traces)b::text[])
           with ordinality
           as given (flow, input, open, before, size, part, key, unique_for, unique_open, at, delay, expires,
                     expires_in, trace, number)
     where exists (select from fence)
),
run as materialized (
    select fresh.*,
           coalesce(fresh.at, rota.clock() + make_interval(secs => fresh.delay)) as wake_at,
           coalesce(fresh.expires, rota.clock() + make_interval(secs => fresh.expires_in)) as ends,
           case when fresh.key is null then fresh.id
                else rota.reserve_key(fresh.flow, fresh.key, fresh.id,
                                   make_interval(secs => fresh.unique_for), fresh.unique_open)
           end as holder
      from fresh
),
node as materialized (
    select nextval('rota.ids') as id, given.*
      from unnest(%(run_numbers)s::int[], %(tasks)s::text[], %(queues)s::text[], %(priorities)s::smallint[],
                  %(args)s::text[], %(options)s::text[], %(rules)s::text[], %(predecessor_counts)s::int[],
                  %(successors)s::text[], %(input_jobs)s::text[])
           with ordinality
           as given (owner, task, queue, priority, args, options, rule, parents, successors, takes, number)
     where exists (select from fence)
),
-- Arrays indexed by number instead of joins: one step per job in any plan.
known as materialized (
    select array(select run.id from run order by run.number) as runs,
           array(select run.before from run order by run.number) as befores,
           array(select run.wake_at from run order by run.number) as wakes,
           array(select run.ends from run order by run.number) as ends,
           array(select run.holder = run.id from run order by run.number) as created,
           array(select run.trace from run order by run.number) as traces,
           array(select node.id from node order by node.number) as jobs
),
job as materialized (
    select node.*, known.runs[node.owner] as run, known.wakes[node.owner] as wake_at,
           known.traces[node.owner] as trace,
           -- A run expires only before it begins, so only jobs without predecessors expire.
           case when node.parents = 0 then known.ends[node.owner] end as expires,
           (select array_agg(case child.number when 0 then known.runs[node.owner]
                                  else known.jobs[known.befores[node.owner] + child.number] end)
              from unnest(node.successors::int[]) as child (number)) as ids,
           case when node.takes is not null then
                (select json_object_agg(input.key, known.jobs[known.befores[node.owner] + input.value::int])
                   from json_each_text(node.takes::json) as input) end as inputs
      from node
     cross join known
     where known.created[node.owner]
),
written as (
    insert into rota.runs (id, flow, key, parent, number, input, jobs, successors)
    select run.id, run.flow, run.key, %(parent)s::bigint, case when run.number = 1 then %(call_number)s::int end,
           run.input::json, known.jobs[run.before + 1 : run.before + run.size],
           case when run.part is not null then array[known.runs[run.part]] end
      from run
     cross join known
     where run.holder = run.id
),
listed as (
    insert into rota.jobs (id, run, expires, priority, task, queue, args, options, rule, successors, inputs, trace)
    select job.id, job.run, job.expires, job.priority, job.task, job.queue, job.args::json, job.options::json,
           job.rule::rota.rule, job.ids, job.inputs, job.trace
      from job
),
blocked as (
    insert into rota.waiting (job, open, attempt, rule, priority, queue, task)
    select job.id, job.parents, 1, job.rule::rota.rule, job.priority, job.queue, job.task
      from job
     where job.parents > 0
     union all
    select run.id, run.open, coalesce(%(attempt)s::smallint, 1), null, null, null, null
      from run
     where run.holder = run.id
),
late as (
    insert into rota.sleeping (job, wake_at, priority, queue, task)
    select job.id, job.wake_at, job.priority, job.queue, job.task
      from job
     where job.parents = 0 and job.wake_at > rota.clock()
),
enqueued as (
    insert into rota.queued (seq, job, priority, queue, task)
    select job.id, job.id, job.priority, job.queue, job.task
      from job
     where job.parents = 0 and (job.wake_at is null or job.wake_at <= rota.clock())
    returning queued.queue
)
select run.holder, run.holder = run.id
  from run
 -- Always true. With `notify`, each queue's notification is sent at commit.
 where (select count(case when %(notify)s::boolean then pg_notify('rota.wake', news.queue)::text end) >= 0
          from (select distinct enqueued.queue from enqueued) as news)
 order by run.number
