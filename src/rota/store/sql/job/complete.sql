-- Record that jobs succeeded, and remove them from their claims. Jobs of runs release their successors.
--
-- A job is accepted only while the claim given holds it. Other jobs are returned as refused, and nothing is written for
-- them. The remaining jobs of a claim are computed from the locked row, never from the statement's snapshot. Claims are
-- locked in the order of their ids.
--
-- Returns one row: the refused jobs, the queues that received jobs, the runs that ended, and true if releases are
-- pending.
with held as materialized (
    select claims.id, claims.jobs, claims.attempts, claims.crashes, claims.seqs
      from rota.claims
     where claims.id = any(%(claims)s::bigint[])
       and claims.worker = %(worker)b::bigint
     order by claims.id
       for no key update
),
given as materialized (
    select given.claim, given.job, given.result, given.seconds, given.in_run
      from unnest(%(claims)s::bigint[], %(jobs)s::bigint[], %(results)s::json[], %(durations)s::bigint[],
                  %(in_runs)s::boolean[])
           as given (claim, job, result, seconds, in_run)
),
member as materialized (
    select held.id as claim, member.job, member.attempt, member.crashes, member.seq, member.number,
           given.job is not null as finished, given.result, given.seconds, given.in_run
      from held
     cross join lateral unnest(held.jobs, held.attempts, held.crashes, held.seqs)
           with ordinality as member (job, attempt, crashes, seq, number)
      left join given on given.job = member.job and given.claim = held.id
),
recorded as (
    insert into rota.outcomes (job, claim, worker, seconds, state, attempt, result)
    select member.job, member.claim, %(worker)b::bigint, member.seconds::float8 / 1e6, 'succeeded', member.attempt,
           member.result
      from member
     where member.finished
),
remaining as materialized (
    select member.claim,
           count(*) filter (where not member.finished) as open,
           array_agg(member.job order by member.number) filter (where not member.finished) as jobs,
           array_agg(member.attempt order by member.number) filter (where not member.finished) as attempts,
           array_agg(member.crashes order by member.number) filter (where not member.finished) as crashes,
           array_agg(member.seq order by member.number) filter (where not member.finished) as seqs
      from member
     group by member.claim
),
emptied as (
    delete from rota.claims
     where claims.id = any(array(select remaining.claim from remaining where remaining.open = 0))
),
shrunk as (
    update rota.claims
       set jobs = remaining.jobs, attempts = remaining.attempts, crashes = remaining.crashes, seqs = remaining.seqs
      from remaining
     where claims.id = remaining.claim
       and remaining.open > 0
)
select array(
       select given.job
         from given
        where not exists (
              select from member where member.job = given.job and member.claim = given.claim)),
       passed.queues, passed.runs, passed.has_pending
  from rota.release_successors(array(select member.job from member where member.in_run)) as passed
