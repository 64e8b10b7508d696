-- Move a job to a new claim, which expires after `seconds`; if null, the claim is valid while the worker lives. If the
-- job is alone in its claim, keep that claim and only set its expiry.
--
-- An earlier statement of the transaction has locked the claim. Sent again after a lost answer, this statement does not
-- find the job in the old claim and changes nothing.
with member as materialized (
    select claims.id, cardinality(claims.jobs) as many, member.attempt, member.crashes, member.seq, member.number
      from rota.claims
     cross join lateral unnest(claims.jobs, claims.attempts, claims.crashes, claims.seqs)
           with ordinality as member (job, attempt, crashes, seq, number)
     where claims.id = %(claim)s::bigint
       and claims.worker = %(worker)s::bigint
       and member.job = %(job)s::bigint
),
made as (
    insert into rota.claims (worker, nonce, expires, jobs, attempts, crashes, seqs)
    select %(worker)s::bigint, %(nonce)s::uuid, rota.clock() + make_interval(secs => %(seconds)s::float8),
           array[%(job)s::bigint], array[member.attempt], array[member.crashes], array[member.seq]
      from member
     where member.many > 1
)
update rota.claims
   set jobs = case when member.many > 1 then array_remove(claims.jobs, %(job)s::bigint) else claims.jobs end,
       attempts = case when member.many > 1 then claims.attempts[:member.number - 1]
                       || claims.attempts[member.number + 1:] else claims.attempts end,
       crashes = case when member.many > 1 then claims.crashes[:member.number - 1]
                   || claims.crashes[member.number + 1:] else claims.crashes end,
       seqs = case when member.many > 1 then claims.seqs[:member.number - 1]
                   || claims.seqs[member.number + 1:] else claims.seqs end,
       expires = case when member.many > 1 then claims.expires
                    else coalesce(rota.clock() + make_interval(secs => %(seconds)s::float8), claims.expires) end
  from member
 where claims.id = member.id
