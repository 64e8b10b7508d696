-- breaking: yes
-- Recovery of jobs whose worker is lost, release from quarantine, the fence for a job's own transactions, and drain.

-- Take back the jobs of a claim if its worker is lost or the claim has expired.
--
-- Returns the jobs taken back, the queues that received jobs, the runs that finished, and `rest`: true if releases are
-- left in `pending_releases`. No jobs: there was nothing to do, or another transaction holds the claim's lock and the
-- caller retries later.
--
-- The jobs are read from the claim under its lock, never from `outcomes`: rows there may be newer than the statement's
-- snapshot.
--
--   job                                   effect
--   has a cancel request                  cancelled
--   may have crashed the worker           queued under its old `seq`; charged with an attempt and a crash
--   any other                             queued under its old `seq` as a suspect; not charged
--
-- No outcome is recorded under the claim: its holder must not mistake it for an outcome of its own.
--
-- With `which`, only these jobs are taken back. If one job cannot be moved, the caller moves the remaining jobs this
-- way.
create function rota.reap(
    claim      bigint,
    which      bigint[] default null,
    out jobs   bigint[],
    out queues text[],
    out runs   bigint[],
    out rest   boolean
)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_mergejoin = off
set jit = off
as $$
declare
    held     record;
    owner    record;
    story    text;
    unwanted bigint[];
    news     text[];
begin
    jobs := '{}';
    queues := '{}';
    runs := '{}';
    rest := false;
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

    with member as materialized (
        select member.job, member.attempt, member.lost, member.seq,
               held.expires is not null or coalesce(member.job = any(owner.charged_jobs), false) as charged,
               coalesce(member.job = any(owner.doubtful_jobs), false) as doubtful,
               exists (select from rota.cancels where cancels.job = member.job) as unwanted
          from unnest(held.jobs, held.attempts, held.lost, held.seqs) as member (job, attempt, lost, seq)
         where reap.which is null or member.job = any(reap.which)
    ),
    ended as (
        insert into rota.outcomes (job, worker, state, attempt)
        select member.job, held.worker, 'cancelled', member.attempt
          from member
         where member.unwanted
        on conflict (job) do nothing
    ),
    obeyed as (
        delete from rota.cancels
         where cancels.job = any(array(select member.job from member where member.unwanted))
    ),
    kept as (
        insert into rota.attempts (job, worker, state, attempt, error)
        select member.job, held.worker, 'failed', member.attempt,
               json_build_object('type', 'rota.errors.WorkerLost', 'message', story, 'traceback', '',
                                 'attempt', member.attempt)
          from member
         where (member.charged or member.doubtful) and not member.unwanted
    ),
    put as (
        insert into rota.queued (seq, job, priority, attempt, lost, queue, task)
        select member.seq, member.job, job.priority,
               case when member.charged or member.doubtful then member.attempt + 1 else member.attempt end,
               case when owner.state = 'stopped' and not member.charged then member.lost
                    when member.charged and member.lost >= 0 then -member.lost - 3
                    -- It was lost together with other jobs before; that loss is now attributed to it.
                    when member.charged and member.lost >= -2 then member.lost - 3
                    when member.doubtful and member.lost = -2 then -4
                    when member.charged or member.doubtful then member.lost - 1
                    when member.lost > 0 then -member.lost - 2
                    when member.lost = -3 then -4
                    else greatest(member.lost - 1, least(member.lost, -2)) end,
               job.queue, job.task
          from member
         cross join lateral (
               select jobs.priority, jobs.queue, jobs.task from rota.jobs where jobs.id = member.job offset 0
               ) as job
         where not member.unwanted
        returning queued.queue
    )
    select array(select member.job from member), array(select member.job from member where member.unwanted),
           array(select distinct put.queue from put)
      into reap.jobs, unwanted, news;

    if reap.which is null then
        delete from rota.claims where claims.id = held.id;
    else
        with rest as (
            select array_agg(member.job order by member.number) as jobs,
                   array_agg(member.attempt order by member.number) as attempts,
                   array_agg(member.lost order by member.number) as lost,
                   array_agg(member.seq order by member.number) as seqs
              from unnest(held.jobs, held.attempts, held.lost, held.seqs)
                   with ordinality as member (job, attempt, lost, seq, number)
             where member.job <> all(reap.jobs)
        ),
        emptied as (
            delete from rota.claims using rest where claims.id = held.id and rest.jobs is null
        )
        update rota.claims
           set jobs = rest.jobs, attempts = rest.attempts, lost = rest.lost, seqs = rest.seqs
          from rest
         where claims.id = held.id and rest.jobs is not null;
    end if;

    select news || passed.queues, passed.runs, passed.rest into queues, runs, rest
      from rota.release_successors(unwanted, array_fill('cancelled'::rota.outcome,
                                                        array[cardinality(unwanted)])) as passed;
end
$$;

-- Release jobs of a run from quarantine, or one job: each gets one more attempt. Returns the number of jobs.
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
    with gone as (
        delete from rota.quarantine
         where quarantine.job = any(members)
        returning quarantine.*
    ),
    put as (
        insert into rota.queued (seq, job, priority, attempt, queue, task)
        select nextval('rota.ids'), gone.job, gone.priority, gone.attempt, gone.queue, gone.task
          from (select gone.* from gone order by gone.job) as gone
        returning queued.queue
    ),
    told as (
        select pg_notify('rota.wake', news.queue)
          from (select distinct put.queue from put) as news
    )
    select (select count(*) from put) + 0 * (select count(*) from told) into released;
    return released;
end
$$;

-- Assert that this claim still holds the job. A job's code calls it in its own transaction; until that transaction
-- ends, the job cannot be taken back. Raises RT002 if it was taken back already, which rolls the transaction back.
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

-- Request that a worker finishes its jobs and stops. Returns its state; null if there is no such worker.
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
