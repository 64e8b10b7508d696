-- breaking: no
-- Functions that start and move jobs: start, release of successors, retry, fork, cancellation, recovery.
--
-- Moves of more than one job are functions for two reasons. They work in rounds, each with a fresh snapshot under the
-- locks of the round before. Clients in any language need them.
--
-- Lock order: claims by id, then rows of `waiting` by id, jobs and runs alike.
--
-- The functions that any connection may call disable sequential scans, bitmap scans and merge joins, so that they use
-- indexes independent of the table's statistics.

-- Start

create function rota.reserve_key(
    task text, key text, run bigint, unique_for interval, unique_open boolean
) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
    holder bigint;
begin
    loop
        begin
            insert into rota.keys as held (task, key, run, expires, while_open)
            values (reserve_key.task, reserve_key.key, reserve_key.run,
                    rota.clock() + reserve_key.unique_for, reserve_key.unique_open)
            on conflict on constraint keys_pkey do update
               set run = excluded.run, expires = excluded.expires, while_open = excluded.while_open
             where held.expires <= rota.clock()
                or (held.while_open
                    and exists (select from rota.outcomes where outcomes.job = held.run));
        exception when lock_not_available then
            raise exception 'key % of task % is held by an open transaction', reserve_key.key, reserve_key.task
                using errcode = 'RT001';
        end;
        if found then
            return reserve_key.run;
        end if;
        -- A new statement, because the snapshot of the insert may be older than the conflicting row.
        select held.run into holder
          from rota.keys as held
         where held.task = reserve_key.task and held.key = reserve_key.key;
        if found then
            return holder;
        end if;
    end loop;
end
$$;
comment on function rota.reserve_key is
    'Reserve an idempotency key for a run. Returns the id of the run that has the key: the given one, or the one that '
    'reserved it before. Raises RT001 if an open transaction holds the key for more than two seconds.';

-- Every start of a single job uses this function.
create function rota.start(
    task         text,
    args         json default '{}',
    queue        text default 'default',
    priority     integer default 0,
    key          text default null,
    unique_for   interval default null,
    unique_open  boolean default false,
    at           timestamptz default null,
    delay        interval default null,
    expires      timestamptz default null,
    expires_in   interval default null,
    options      json default null,
    notify       boolean default true,
    trace        text default null,
    out run      bigint,
    out created  boolean
)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
    fresh bigint := nextval('rota.ids');
begin
    if start.priority not between 0 and 9 then
        raise exception 'priority must be from 0 to 9, not %', start.priority using errcode = 'RT003';
    end if;
    if json_typeof(start.args) <> 'object' then
        raise exception 'args must be a JSON object, the task''s arguments by name, not a %',
            json_typeof(start.args) using errcode = 'RT003';
    end if;
    if start.trace !~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then
        raise exception 'trace must be a W3C traceparent such as '
            '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01, not %', left(start.trace, 60)
            using errcode = 'RT003';
    end if;

    run := fresh;
    created := true;

    if start.key is not null then
        start.run := rota.reserve_key(
            start.task, start.key, start.run, start.unique_for, start.unique_open);
        if start.run <> fresh then
            created := false;
            return;
        end if;
    end if;

    start.at := coalesce(start.at, rota.clock() + start.delay);
    insert into rota.jobs (id, expires, priority, task, queue, key, args, options, trace)
    values (start.run, coalesce(start.expires, rota.clock() + start.expires_in),
            start.priority, start.task, start.queue, start.key, start.args, start.options, start.trace);

    if start.at > rota.clock() then
        insert into rota.sleeping (job, wake_at, priority, queue, task)
        values (start.run, start.at, start.priority, start.queue, start.task);
    else
        insert into rota.queued (seq, job, priority, queue, task)
        values (start.run, start.run, start.priority, start.queue, start.task);
    end if;

    if start.notify then
        perform pg_notify('rota.wake', start.queue);
    end if;
end
$$;
comment on function rota.start is
    'Start a task from any language, in the caller''s own transaction. Returns the run, and `created`: true if this '
    'call created it, false if another run has the key. If an open transaction holds the key, the call fails with '
    'RT001 after two seconds. Raises RT003 for invalid arguments. Public and stable.';

-- Release of successors

-- `kinds` is how each finished id counts for its successors: succeeded (also null), failed, cancelled or skipped.
--
-- A round takes the finished ids of the round before and does this with each successor:
--
--   1. Count its finished predecessors down in `waiting`.
--   2. If none is open any more, remove it from `waiting` and decide:
--
--        a job, its rule is satisfied         insert it into `queued`
--        a job, its rule is not satisfied     record the outcome `skipped`
--        a job with a cancel request          record the outcome `cancelled`
--        a run                                record its outcome: failed, cancelled or succeeded
--
-- Jobs that were not queued and runs that finished are the input of the next round.
--
-- Locks: the first round waits for row locks in the order of ids. The next rounds cannot keep that order, so waiting
-- could end in a deadlock. They do not wait: if another transaction has locked a successor, the ids of that round are
-- stored in `pending_releases`. Another transaction releases their successors.
--
-- With `due`, the first round counts one finished predecessor for each of these jobs, and ignores `ended`.
create function rota.release_successors(
    ended           bigint[],
    kinds           rota.outcome[] default null,
    with_runs       boolean default false,              -- true if `ended` contains runs
    due             bigint[] default null,
    out queues      text[],
    out runs        bigint[],
    out has_pending boolean
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    waits       boolean := true;                        -- first round: wait for locks
    present     integer;
    max_blocked integer;                                -- upper bound of targets that keep open predecessors
    targets     bigint[];                               -- successors of this round, parallel to the arrays below
    parents     integer[];
    faults      integer[];
    stops       integer[];
    skips       integer[];
    new_queues  text[];
    over        bigint[];
begin
    queues := '{}';
    runs := '{}';
    has_pending := false;
    loop
        if release_successors.due is not null then
            select array_agg(each.job order by each.job), array_agg(1), array_agg(0), array_agg(0), array_agg(0)
              into targets, parents, faults, stops, skips
              from unnest(release_successors.due) as each (job);
            release_successors.due := null;
        else
            with node as materialized (
                select found.run, found.successors, given.kind
                  from unnest(release_successors.ended, release_successors.kinds) as given (job, kind)
                 cross join lateral (
                       select jobs.run, jobs.successors from rota.jobs where jobs.id = given.job
                        union all
                       select null, runs.successors
                         from rota.runs
                        where release_successors.with_runs and runs.id = given.job
                       offset 0
                       ) as found
            ),
            link as (
                select child.job, 1 as parent,
                       case when child.job = node.run then null else node.kind end as kind
                  from node
                 cross join lateral unnest(node.successors) as child (job)
                 union all
                -- A failed or cancelled job counts for its run, even if the run is not its direct successor.
                select node.run, 0, node.kind
                  from node
                 where node.kind in ('failed', 'cancelled') and node.run is not null
            ),
            total as (
                select link.job, sum(link.parent)::int as parents,
                       count(*) filter (where link.kind = 'failed')::int as faults,
                       count(*) filter (where link.kind = 'cancelled')::int as stops,
                       count(*) filter (where link.kind = 'skipped')::int as skips
                  from link
                 group by link.job
            )
            select array_agg(total.job), array_agg(total.parents), array_agg(total.faults),
                   array_agg(total.stops), array_agg(total.skips)
              into targets, parents, faults, stops, skips
              from total;
        end if;
        exit when targets is null;

        -- Lock in the order of ids. The statement after this one sees counts and cancel requests as of these locks.
        if waits then
            select count(*) filter (where row.open > due.parents) into max_blocked
              from (select due.job, due.parents
                      from unnest(targets, parents) as due (job, parents) order by due.job) as due
             cross join lateral (
                   select waiting.open from rota.waiting where waiting.job = due.job for update offset 0) as row;
        else
            select count(*) into present from rota.waiting where waiting.job = any(targets);
            perform from rota.waiting where waiting.job = any(targets) for update skip locked;
            get diagnostics max_blocked = row_count;
            if max_blocked < present then
                insert into rota.pending_releases (job, kind)
                select each.job, each.kind from unnest(release_successors.ended,
                                                       release_successors.kinds) as each (job, kind);
                has_pending := true;
                exit;
            end if;
        end if;

        with due as (
            select * from unnest(targets, parents, faults, stops, skips)
                       as due (job, parents, faults, stops, skips)
        ),
        counted as (
            update rota.waiting
               set open = waiting.open - due.parents, failed = waiting.failed + due.faults,
                   cancelled = waiting.cancelled + due.stops, skipped = waiting.skipped + due.skips
              from due
             where max_blocked > 0
               and waiting.job = due.job
               and waiting.open > due.parents
        ),
        through as (
            delete from rota.waiting
             using due
             where waiting.job = due.job
               and waiting.open <= due.parents
            returning waiting.job, waiting.rule, waiting.priority, waiting.attempt, waiting.queue, waiting.task,
                      waiting.failed + due.faults as failed, waiting.cancelled + due.stops as cancelled,
                      waiting.skipped + due.skips as skipped
        ),
        requested as (
            select through.*,
                   (select exists (select from rota.cancels))
                       and exists (select from rota.cancels where cancels.job = through.job) as to_cancel
              from through
        ),
        judged as materialized (
            select requested.*,
                   not to_cancel
                   and case requested.rule
                            when 'all_succeeded' then failed + cancelled + skipped = 0
                            when 'none_failed' then failed + cancelled = 0
                            when 'all_done' then true
                            when 'any_failed' then failed > 0
                       end as goes,
                   -- How it counts for its own successors. Only a run has no rule.
                   case when requested.rule is not null and to_cancel then 'cancelled'
                        when failed > 0 then 'failed'
                        when cancelled > 0 then 'cancelled'
                        when requested.rule is null then 'succeeded'
                        else 'skipped'
                   end::rota.outcome as kind
              from requested
        ),
        enqueued as (
            insert into rota.queued (seq, job, priority, attempt, queue, task)
            select nextval('rota.ids'), judged.job, judged.priority, judged.attempt, judged.queue, judged.task
              from (select judged.* from judged where judged.goes order by judged.job) as judged
            returning queued.queue
        ),
        skipped as (
            insert into rota.outcomes (job, state, attempt, error)
            select judged.job, case when judged.to_cancel then 'cancelled' else 'skipped' end::rota.outcome,
                   judged.attempt,
                   case when judged.kind <> 'skipped' and not judged.to_cancel then
                        json_build_object(
                            'type', 'Skipped', 'message', 'a job it waits for ' ||
                             case judged.kind when 'failed' then 'failed' else 'was cancelled' end,
                            'traceback', '', 'attempt', judged.attempt) end
              from judged
             where judged.rule is not null and not judged.goes
        ),
        ended as (
            insert into rota.outcomes (job, state, attempt)
            select judged.job,
                   -- A run that failed after a cancel request is recorded as cancelled.
                   case when judged.kind = 'failed' and judged.to_cancel then 'cancelled' else judged.kind end,
                   judged.attempt
              from judged
             where judged.rule is null
        ),
        cleared as (
            delete from rota.cancels
             where cancels.job = any(array(select judged.job from judged where judged.to_cancel))
        )
        select array(select distinct enqueued.queue from enqueued),
               array_agg(judged.job) filter (where judged.rule is null),
               array_agg(judged.job), array_agg(judged.kind)
          into new_queues, over, release_successors.ended, release_successors.kinds
          from judged
         where judged.rule is null or not judged.goes;

        queues := queues || new_queues;
        runs := runs || over;
        exit when release_successors.ended is null;
        waits := false;
        release_successors.with_runs := true;
    end loop;
end
$$;
comment on function rota.release_successors is
    'Release the successors of jobs and runs that have finished. The caller records the outcomes in the same '
    'transaction. Returns the queues that received jobs, the runs that finished, and `has_pending`: true if releases '
    'are left in `pending_releases`, for `rota.release_pending`.';

create function rota.release_pending(most integer, out queues text[], out runs bigint[], out has_pending boolean)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_mergejoin = off
set jit = off
as $$
declare
    ended bigint[];
    kinds rota.outcome[];
begin
    with taken as (
        delete from rota.pending_releases
         where pending_releases.job = any(array(
               select pending_releases.job
                 from rota.pending_releases
                order by pending_releases.job
                limit most
                  for update skip locked))
        returning pending_releases.job, pending_releases.kind
    )
    select array_agg(taken.job), array_agg(taken.kind) into ended, kinds from taken;
    if ended is null then
        queues := '{}';
        runs := '{}';
        has_pending := false;
        return;
    end if;
    select passed.* into queues, runs, has_pending
      from rota.release_successors(ended, kinds, with_runs => true) as passed;
end
$$;
comment on function rota.release_pending is
    'Release the successors of up to `most` entries of `pending_releases`. Returns the same columns as '
    '`rota.release_successors`.';

create function rota.place_job(
    run bigint, restarted bigint[], attempt smallint, out queues text[], out runs bigint[], out has_pending boolean
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    with member as materialized (
        select job.id, job.run, job.rule, job.priority, job.queue, job.task, job.successors,
               job.id = any(place_job.restarted) as open
          from rota.jobs as job
         where job.id = any((select runs.jobs from rota.runs where runs.id = place_job.run)::bigint[])
    ),
    link as (
        select link.job, count(*) filter (where link.open) as open,
               count(*) filter (where link.skipped) as skipped
          from (select child.job, member.open, outcome.state = 'skipped' as skipped
                  from member
                 cross join lateral unnest(member.successors) as child (job)
                  left join rota.outcomes as outcome on outcome.job = member.id
                 union all
                -- Flows that are parts of this run.
                select place_job.run, not exists (select from rota.outcomes where outcomes.job = part.id), false
                  from rota.runs as whole
                  join rota.runs as part on part.parent = whole.parent and part.successors = array[whole.id]
                 where whole.id = place_job.run) as link
         group by link.job
    )
    insert into rota.waiting (job, open, skipped, attempt, rule, priority, queue, task)
    -- One more than the open predecessors: the call below counts it down when all rows exist.
    select member.id, coalesce(link.open, 0) + 1, coalesce(link.skipped, 0),
           coalesce((select max(attempts.attempt) + 1 from rota.attempts where attempts.job = member.id), 1),
           member.rule, member.priority, member.queue, member.task
      from member
      left join link on link.job = member.id
     where member.open
     union all
    select link.job, link.open, 0, place_job.attempt, null, null, null, null
      from link
     where link.job = place_job.run;

    select passed.* into queues, runs, has_pending
      from rota.release_successors(null, due => place_job.restarted) as passed;
end
$$;
comment on function rota.place_job is
    'Insert jobs of a run into `waiting`. None of them may have an outcome or be in another table. Jobs without open '
    'predecessors are released at once. The run waits for all of them. Returns the same columns as '
    '`rota.release_successors`.';

-- Retry, fork, cancel

-- In a flow's run, failed jobs run again together with all their direct and indirect successors: jobs that were
-- skipped because of the failure, and jobs that ran because of it or in spite of it. In a run of a job's calls, only
-- failed jobs run again. Outcomes become rows of `attempts`.
create function rota.retry(run bigint, attempt smallint default null) returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_mergejoin = off
set jit = off
set lock_timeout = '2s'
as $$
declare
    ended     record;
    members   bigint[];
    calls     boolean;
    whole     bigint;
    restarted bigint[];
    answer    text[];
begin
    select jobs.run into whole from rota.jobs where jobs.id = retry.run;
    if whole is not null then
        raise exception 'job % is a part of run %; retry the run', retry.run, whole
            using errcode = 'RT003';
    end if;
    select waiting.job into whole
      from rota.runs
      join rota.waiting on waiting.job = any(runs.successors)
     where runs.id = retry.run;
    if found then
        raise exception 'run % is a part of run %, which is still open; retry that run when it has ended',
            retry.run, whole using errcode = 'RT003';
    end if;
    -- A second, concurrent retry waits here and then finds no outcome.
    select outcomes.state, outcomes.attempt into ended
      from rota.outcomes where outcomes.job = retry.run for update;
    if not found or ended.state = 'succeeded' then
        return null;
    end if;

    select runs.jobs, runs.flow is null into members, calls from rota.runs where runs.id = retry.run;
    if not found then
        restarted := array[retry.run];
    else
        with recursive undone (job) as (
            select outcomes.job
              from rota.outcomes
             where outcomes.job = any(members)
               and (outcomes.state in ('failed', 'cancelled', 'expired')
                    or (outcomes.state = 'skipped' and outcomes.error is not null))
             union
            select child.job
              from undone
              join rota.jobs as job on job.id = undone.job
             cross join lateral unnest(job.successors) as child (job)
             where not calls and child.job <> retry.run
        )
        select array_agg(undone.job) into restarted from undone;

        -- The inputs of the direct successors may change, so these make their calls and run their steps again.
        if not calls then
            update rota.runs
               set number = null
             where runs.parent = any(array(
                   select child.job
                     from rota.jobs as job
                    cross join lateral unnest(job.successors) as child (job)
                    where job.id = any(restarted)))
               and runs.number is not null;
            delete from rota.steps
             where steps.job = any(array(
                   select child.job
                     from rota.jobs as job
                    cross join lateral unnest(job.successors) as child (job)
                    where job.id = any(restarted) and child.job <> retry.run));
        end if;
    end if;

    with deleted as (
        delete from rota.outcomes
         where outcomes.job = any(restarted) or outcomes.job = retry.run
        returning outcomes.*
    ),
    kept as (
        insert into rota.attempts (job, claim, worker, at, seconds, state, attempt, result, error)
        select deleted.job, deleted.claim, deleted.worker, deleted.at, deleted.seconds, deleted.state,
               deleted.attempt, deleted.result, deleted.error
          from deleted
         where deleted.state <> 'skipped'
    )
    delete from rota.cancels where cancels.job = any(array(select deleted.job from deleted));

    if members is not null then
        -- Flows that are parts of this run have runs of their own.
        select array_agg(changed.queue) into answer
          from rota.runs as whole
          join rota.runs as part on part.parent = whole.parent and part.successors = array[whole.id]
         cross join lateral unnest(rota.retry(part.id)) as changed (queue)
         where whole.id = retry.run;
        select answer || placed.queues into answer from rota.place_job(
               retry.run, coalesce(restarted, '{}'),
               coalesce(retry.attempt, (ended.attempt + 1)::smallint)) as placed;
        return answer;
    end if;
    insert into rota.queued (seq, job, priority, attempt, queue, task)
    select nextval('rota.ids'), job.id, job.priority,
           (select max(attempts.attempt) + 1 from rota.attempts where attempts.job = job.id),
           job.queue, job.task
      from rota.jobs as job
     where job.id = retry.run
    returning array[queued.queue] into answer;
    return answer;
end
$$;
comment on function rota.retry is
    'Retry a run that failed, expired or was cancelled. Returns the queues that received jobs; null if the run has '
    'not finished, has succeeded or does not exist. The new attempt of the run has the number `attempt`, or the next '
    'one. Raises RT003 for a part of another run. Public and stable.';

create function rota.fork(run bigint, task text, trace text default null, out forked bigint, out queues text[])
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    old       bigint[];
    new       bigint[];
    restarted bigint[];
begin
    -- Prevents retention from removing the run before the copy is complete.
    select runs.jobs into old from rota.runs where runs.id = fork.run for key share;
    if not exists (select from rota.jobs where jobs.id = any(old) and jobs.task = fork.task) then
        return;
    end if;
    forked := nextval('rota.ids');
    new := array(select nextval('rota.ids') from unnest(old));

    with recursive open (job) as (
        select job.id
          from rota.jobs as job
          left join rota.outcomes as outcome on outcome.job = job.id
         where job.id = any(old)
           and (job.task = fork.task
                or outcome.state is null
                or outcome.state not in ('succeeded', 'skipped')
                or (outcome.state = 'skipped' and outcome.error is not null))
         union
        select child.job
          from open
          join rota.jobs as job on job.id = open.job
         cross join lateral unnest(job.successors) as child (job)
         where child.job <> fork.run
    ),
    pair as materialized (
        select pair.old, pair.new, open.job is not null as open
          from unnest(old, new) as pair (old, new)
          left join open on open.job = pair.old
    ),
    written as (
        insert into rota.runs (id, flow, forked_from, input, jobs)
        select forked, runs.flow, runs.id, runs.input, new from rota.runs where runs.id = fork.run
    ),
    copied as (
        insert into rota.jobs (id, run, expires, priority, task, queue, args, options, rule, successors, inputs, trace)
        select pair.new, forked, null, job.priority, job.task, job.queue, job.args, job.options, job.rule,
               (select array_agg(coalesce(other.new, forked) order by child.number)
                  from unnest(job.successors) with ordinality as child (job, number)
                  left join pair as other on other.old = child.job),
               (select json_object_agg(input.key, other.new)
                  from json_each_text(job.inputs) as input
                  join pair as other on other.old = input.value::bigint),
               fork.trace
          from pair
          join rota.jobs as job on job.id = pair.old
    ),
    kept as (
        insert into rota.outcomes (job, worker, at, seconds, state, attempt, result)
        select pair.new, outcome.worker, outcome.at, outcome.seconds, outcome.state, outcome.attempt,
               outcome.result
          from pair
          join rota.outcomes as outcome on outcome.job = pair.old
         where not pair.open
    )
    select array_agg(pair.new) into restarted from pair where pair.open;

    select placed.queues into queues from rota.place_job(forked, restarted, 1::smallint) as placed;
end
$$;
comment on function rota.fork is
    'Start a new run of a flow that repeats an old run from one of its tasks on. The task, its direct and indirect '
    'successors, and all jobs that have not succeeded run again; the outcomes of the other jobs are copied. Returns '
    'the new run and the queues that received jobs; null if there is no such run, or no such task in it.';

-- The request is written first. Then each job is searched table by table, in fresh statements, until it is found. In
-- `claims` and `waiting` the row is locked until the end of the transaction, so the next transaction that moves the
-- job sees the request.
create function rota.cancel(run bigint) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_mergejoin = off
set jit = off
set lock_timeout = '2s'
as $$
declare
    tree    bigint[];                                   -- the runs concerned
    wanted  bigint[];                                   -- their jobs, or the one job
    missing bigint[];                                   -- … not found yet
    bound   bigint[] := '{}';                           -- … in rows that are locked
    stopped bigint[] := '{}';                           -- … that this call has cancelled
    here    bigint[];
    held    boolean := false;
    waits   boolean := true;                            -- may wait for a claim: no row of `waiting` is locked
    deep    boolean := false;                           -- search whole lanes of `queued`
    locked  integer;
    passed  record;
begin
    select array[runs.id], runs.jobs into tree, wanted from rota.runs where runs.id = cancel.run;
    if not found then
        select array[]::bigint[], array[jobs.id] into tree, wanted from rota.jobs where jobs.id = cancel.run;
        if not found then
            return null;
        end if;
    end if;

    for look in 1..1000 loop
        missing := array(
            select request.job
              from unnest(wanted) as request (job)
             where not exists (select from rota.outcomes where outcomes.job = request.job)
             except all
            select each.job from unnest(bound) as each (job)
             order by 1);
        exit when missing = '{}' and look > 1;
        insert into rota.cancels (job)
        select request.job from unnest(missing || tree) as request (job) order by request.job
        on conflict do nothing;

        -- First search `queued` by the number that the job had at its start. If that fails, the job has another
        -- number: read the whole lane.
        if deep then
            with removed as (
                delete from rota.queued
                 using unnest(missing) as request (job)
                 where queued.job = request.job
                   and (queued.queue, queued.priority) in (
                       select distinct jobs.queue, jobs.priority from rota.jobs where jobs.id = any(missing))
                returning queued.job, queued.attempt
            ),
            ended as (
                insert into rota.outcomes (job, state, attempt)
                select removed.job, 'cancelled', removed.attempt from removed
                returning outcomes.job
            )
            select stopped || array(select ended.job from ended) into stopped;
        else
            with removed as (
                delete from rota.queued
                 using rota.jobs as job
                 where job.id = any(missing)
                   and queued.queue = job.queue and queued.priority = job.priority
                   and queued.seq = job.id and queued.job = job.id
                returning queued.job, queued.attempt
            ),
            ended as (
                insert into rota.outcomes (job, state, attempt)
                select removed.job, 'cancelled', removed.attempt from removed
                returning outcomes.job
            )
            select stopped || array(select ended.job from ended) into stopped;
        end if;
        perform from rota.quarantine where quarantine.job = any(missing) order by quarantine.job for update;
        with removed as (
            delete from rota.sleeping where sleeping.job = any(missing) returning sleeping.job, sleeping.attempt
        ),
        freed as (
            delete from rota.quarantine
             where quarantine.job = any(missing)
            returning quarantine.job, quarantine.attempt
        ),
        ended as (
            insert into rota.outcomes (job, state, attempt)
            select found.job, 'cancelled', found.attempt
              from (select removed.job, removed.attempt from removed
                     union all
                    select freed.job, freed.attempt from freed) as found
            returning outcomes.job
        )
        select stopped || array(select ended.job from ended) into stopped;

        -- Held by a worker. Waiting for a claim is safe only while no other transaction can wait for this one. A
        -- transaction of the job's own code that pins the claim (key share) is not waited for: it may be long, and it
        -- may or may not finish the job.
        here := array(
            select distinct claims.id
              from rota.claims
             cross join lateral unnest(claims.jobs) as member (job)
              join unnest(missing) as request (job) on request.job = member.job);
        if waits then
            perform from rota.claims where claims.id = any(here) order by claims.id for no key update;
        else
            perform from rota.claims where claims.id = any(here) for no key update skip locked;
            get diagnostics locked = row_count;
            if locked < cardinality(here) then
                raise exception 'run % is changing its state; try again', cancel.run using errcode = '40001';
            end if;
        end if;
        here := array(
            select member.job
              from rota.claims
             cross join lateral unnest(claims.jobs) as member (job)
              join unnest(missing) as request (job) on request.job = member.job
             where claims.id = any(here));
        held := held or here <> '{}';
        bound := bound || here;

        -- Cancel the runs that these jobs have started. They are searched under the locks: a job found in a claim now
        -- can start no more runs.
        select array_agg(runs.id) into here
          from rota.runs
         where runs.parent = any(wanted)
           and runs.id <> all(tree)
           and not exists (select from rota.outcomes where outcomes.job = runs.id);
        if here is not null and waits then
            tree := tree || here;
            wanted := wanted || array(
                select member.job
                  from rota.runs
                 cross join lateral unnest(runs.jobs) as member (job)
                 where runs.id = any(here));
            continue;
        end if;

        -- These jobs wait for predecessors and finish with them. They are locked together with the rows of the runs,
        -- in the order of ids.
        perform from rota.waiting where waiting.job = any(missing || tree) order by waiting.job for update;
        waits := waits and not found;
        bound := bound || array(select waiting.job from rota.waiting where waiting.job = any(missing));

        deep := true;
        if look = 1000 then
            raise exception 'run % kept changing its state; try again', cancel.run using errcode = '40001';
        end if;
    end loop;

    select * into passed
      from rota.release_successors(stopped, array_fill('cancelled'::rota.outcome, array[cardinality(stopped)]));
    delete from rota.cancels
     where cancels.job = any(wanted || tree)
       and exists (select from rota.outcomes where outcomes.job = cancels.job);
    perform pg_notify(waiters.listener, waiters.job::text)
       from rota.waiters
      where waiters.job = any(wanted || tree || passed.runs)
        and exists (select from rota.outcomes where outcomes.job = waiters.job);
    perform pg_notify('rota.wake', changed.queue) from unnest(passed.queues) as changed (queue);
    if held then
        perform pg_notify('rota.wake', '!cancel');
    end if;
    if exists (select from unnest(bound) as each (job)
                where not exists (select from rota.outcomes where outcomes.job = each.job)) then
        return 'requested';
    end if;
    if stopped <> '{}' then
        return 'cancelled';
    end if;
    -- A concurrent retry may have removed the outcome.
    return coalesce((select outcomes.state::text from rota.outcomes where outcomes.job = cancel.run), 'requested');
end
$$;
comment on function rota.cancel is
    'Cancel a run, or one job of a run, from any language. Runs that its jobs have started are cancelled, too. '
    'Returns `cancelled` if all of it has finished; `requested` if a worker holds a part of it and was asked to stop; '
    'the outcome if it had one already; null if there is no such run. Public and stable.';

-- Recovery of jobs of lost workers

-- The jobs are read from the claim under its lock, never from `outcomes`: rows there may be newer than the statement's
-- snapshot.
--
--   job                                   effect
--   has a cancel request                  cancelled
--   may have crashed the worker           queued under its old `seq`; charged with an attempt and a crash
--   any other                             queued under its old `seq` as a suspect; not charged
--
-- No outcome is recorded under the claim: its holder must not mistake it for an outcome of its own.
create function rota.remove_from_claims(
    owner     bigint,
    claim_ids bigint[],
    job_ids   bigint[],                                 -- parallel to `claim_ids`
    exclusive boolean default false
)
returns table (
    claim     bigint,
    job       bigint,
    attempt   smallint,
    crashes   smallint,
    seq       bigint,
    suspicion rota.suspicion,
    to_cancel boolean
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    -- Locked in the order of ids. The next statement reads the claims and cancel requests as of the locks.
    if remove_from_claims.exclusive then
        perform from rota.claims
          where claims.id = any(claim_ids) and claims.worker = owner
          order by claims.id
            for update;
    else
        perform from rota.claims
          where claims.id = any(claim_ids) and claims.worker = owner
          order by claims.id
            for no key update;
    end if;
    return query
    with member as materialized (
        select claims.id as claim, claims.suspicion, member.job, member.attempt, member.crashes, member.seq,
               member.number, given.job is not null as removed
          from rota.claims
         cross join lateral unnest(claims.jobs, claims.attempts, claims.crashes, claims.seqs)
               with ordinality as member (job, attempt, crashes, seq, number)
          left join unnest(claim_ids, job_ids) as given (claim, job)
                 on given.claim = claims.id and given.job = member.job
         where claims.id = any(claim_ids) and claims.worker = owner
    ),
    remaining as materialized (
        select member.claim,
               array_agg(member.job order by member.number) filter (where not member.removed) as jobs,
               array_agg(member.attempt order by member.number) filter (where not member.removed) as attempts,
               array_agg(member.crashes order by member.number) filter (where not member.removed) as crashes,
               array_agg(member.seq order by member.number) filter (where not member.removed) as seqs
          from member
         group by member.claim
        having bool_or(member.removed)
    ),
    emptied as (
        delete from rota.claims
         where claims.id = any(array(select remaining.claim from remaining where remaining.jobs is null))
    ),
    shrunk as (
        update rota.claims
           set jobs = remaining.jobs, attempts = remaining.attempts, crashes = remaining.crashes,
               seqs = remaining.seqs
          from remaining
         where claims.id = remaining.claim
           and remaining.jobs is not null
    ),
    request as (
        delete from rota.cancels
         where (select exists (select from rota.cancels))
           and cancels.job = any(array(select member.job from member where member.removed))
        returning cancels.job
    )
    select member.claim, member.job, member.attempt, member.crashes, member.seq, member.suspicion,
           member.job = any(array(select request.job from request))
      from member
     where member.removed;
end
$$;
comment on function rota.remove_from_claims is
    'Remove jobs from the claims of a worker, and delete claims without jobs. All moves of claimed jobs use this '
    'function, except `job/complete`. Returns the jobs that were still in the claim given; `to_cancel` is true if '
    'there was a cancel request, which is deleted. The caller moves these jobs in the same transaction. `exclusive` '
    'also waits for a transaction of the job''s code that has locked the claim for key share.';

create function rota.reap(
    claim           bigint,
    which           bigint[] default null,
    out jobs        bigint[],
    out queues      text[],
    out runs        bigint[],
    out has_pending boolean
)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_mergejoin = off
set jit = off
as $$
declare
    held       record;
    owner      record;
    story      text;
    wanted     bigint[];
    to_cancel  bigint[];
    new_queues text[];
begin
    jobs := '{}';
    queues := '{}';
    runs := '{}';
    has_pending := false;
    -- Skip a locked claim: it is being completed, or a transaction of the user's code pins it.
    select claims.* into held from rota.claims where claims.id = reap.claim for update skip locked;
    if not found then
        return;
    end if;
    select workers.* into owner from rota.workers where workers.id = held.worker;
    if held.expires is not null then
        if held.expires > rota.clock() then
            return;
        end if;
        story := 'its hold ran out while worker ' || held.worker || ' had it';
    elsif owner.state in ('active', 'draining') then
        return;
    else
        story := 'worker ' || held.worker
              || coalesce(' (' || owner.host || ', process ' || owner.pid || ')', '') || ' was lost while it ran';
    end if;

    wanted := coalesce(reap.which, held.jobs);
    with member as materialized (
        select removed.*, held.expires is not null or coalesce(removed.job = any(owner.charged_jobs), false) as charged,
               coalesce(removed.job = any(owner.doubtful_jobs), false) as doubtful
          from rota.remove_from_claims(
               held.worker, array_fill(held.id, array[cardinality(wanted)]), wanted, exclusive => true) as removed
    ),
    ended as (
        insert into rota.outcomes (job, worker, state, attempt)
        select member.job, held.worker, 'cancelled', member.attempt
          from member
         where member.to_cancel
        on conflict (job) do nothing
    ),
    kept as (
        insert into rota.attempts (job, worker, state, attempt, error)
        select member.job, held.worker, 'failed', member.attempt,
               json_build_object('type', 'rota.errors.WorkerLost', 'message', story, 'traceback', '',
                                 'attempt', member.attempt)
          from member
         where (member.charged or member.doubtful) and not member.to_cancel
    ),
    blamed as (
        select member.*, is_blameless, (member.crashes + case
                   when is_blameless then 0
                   -- It was lost together with other jobs before; those losses are now attributed to it.
                   when member.charged and member.crashes = 0 and member.suspicion = 'grave' then 3
                   when member.charged and member.crashes = 0 and member.suspicion = 'mild' then 2
                   when member.doubtful and member.crashes = 0 and member.suspicion = 'grave' then 2
                   when member.doubtful and member.crashes = 0 then 0
                   when member.charged or member.doubtful then 1
                   when member.crashes = 1 and member.suspicion = 'mild' then 1
                   else 0 end)::smallint as new_crashes
          from member
         cross join lateral (select owner.state = 'stopped' and not member.charged) as stopped (is_blameless)
    ),
    enqueued as (
        insert into rota.queued (seq, job, priority, attempt, crashes, suspicion, queue, task)
        select blamed.seq, blamed.job, job.priority,
               case when blamed.charged or blamed.doubtful then blamed.attempt + 1 else blamed.attempt end,
               blamed.new_crashes,
               case when blamed.is_blameless then blamed.suspicion
                    when blamed.suspicion is not null or blamed.new_crashes > 1 then 'grave'
                    else 'mild' end::rota.suspicion,
               job.queue, job.task
          from blamed
         cross join lateral (
               select jobs.priority, jobs.queue, jobs.task from rota.jobs where jobs.id = blamed.job offset 0
               ) as job
         where not blamed.to_cancel
        returning queued.queue
    )
    select array(select member.job from member), array(select member.job from member where member.to_cancel),
           array(select distinct enqueued.queue from enqueued)
      into reap.jobs, to_cancel, new_queues;

    select new_queues || passed.queues, passed.runs, passed.has_pending into queues, runs, has_pending
      from rota.release_successors(to_cancel, array_fill('cancelled'::rota.outcome,
                                                        array[cardinality(to_cancel)])) as passed;
end
$$;
comment on function rota.reap is
    'Take back the jobs of a claim if its worker is lost or the claim has expired. With `which`, only these jobs are '
    'taken back: if one job cannot be moved, the caller moves the remaining jobs this way. Returns the jobs taken '
    'back, the queues that received jobs, the runs that finished, and `has_pending`: true if releases are left in '
    '`pending_releases`. No jobs: there was nothing to do, or another transaction holds the lock of the claim and the '
    'caller retries.';

create function rota.release(run bigint) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    members  bigint[] := array[release.run] || (select runs.jobs from rota.runs where runs.id = release.run);
    released integer;
begin
    -- In the order of ids, as `rota.cancel` locks them.
    perform from rota.quarantine where quarantine.job = any(members) order by quarantine.job for update;
    with freed as (
        delete from rota.quarantine
         where quarantine.job = any(members)
        returning quarantine.*
    ),
    enqueued as (
        insert into rota.queued (seq, job, priority, attempt, queue, task)
        select nextval('rota.ids'), freed.job, freed.priority, freed.attempt, freed.queue, freed.task
          from (select freed.* from freed order by freed.job) as freed
        returning queued.queue
    ),
    notified as (
        select pg_notify('rota.wake', changed.queue)
          from (select distinct enqueued.queue from enqueued) as changed
    )
    select (select count(*) from enqueued) + 0 * (select count(*) from notified) into released;
    return released;
end
$$;
comment on function rota.release is
    'Release the jobs of a run from quarantine, or one job: each gets one more attempt. Returns the number of jobs. '
    'Public and stable.';

create function rota.assert_claim(job bigint, claim bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    perform from rota.claims
      where claims.id = assert_claim.claim
        and assert_claim.job = any(claims.jobs)
        for key share;
    if not found then
        raise exception 'job % is no longer held under claim %', assert_claim.job, assert_claim.claim
            using errcode = 'RT002';
    end if;
end
$$;
comment on function rota.assert_claim is
    'Assert that this claim still holds the job. A job''s code calls it in its own transaction; until that '
    'transaction ends, the job cannot be taken back. Raises RT002 if the job was taken back already, which rolls the '
    'transaction back. Public and stable.';

create function rota.drain(worker bigint) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    answer text;
begin
    update rota.workers
       set drain_requested = coalesce(workers.drain_requested, rota.clock())
     where workers.id = drain.worker
       and workers.state in ('active', 'draining');
    if found then
        perform pg_notify('rota.wake', '!drain');
    end if;
    select workers.state::text into answer from rota.workers where workers.id = drain.worker;
    return answer;
end
$$;
comment on function rota.drain is
    'Request that a worker finishes its jobs and stops. Returns its state; null if there is no such worker. Public '
    'and stable.';
