-- Remove jobs from claims. Delete a claim that has none left.
--
-- An earlier statement of the transaction has locked the claims.
with remaining as materialized (
    select claims.id,
           count(member.job) as open,
           array_agg(member.job order by member.number) as jobs,
           array_agg(member.attempt order by member.number) as attempts,
           array_agg(member.lost order by member.number) as lost,
           array_agg(member.seq order by member.number) as seqs
      from rota.claims
      left join lateral (
           select member.job, member.attempt, member.lost, member.seq, member.number
             from unnest(claims.jobs, claims.attempts, claims.lost, claims.seqs)
                  with ordinality as member (job, attempt, lost, seq, number)
            where member.job <> all(%(jobs)s::bigint[])
           ) as member on true
     where claims.id = any(%(claims)s::bigint[])
       and claims.worker = %(worker)b::bigint
     group by claims.id
),
emptied as (
    delete from rota.claims
     where claims.id = any(array(select remaining.id from remaining where remaining.open = 0))
)
update rota.claims
   set jobs = remaining.jobs, attempts = remaining.attempts, lost = remaining.lost, seqs = remaining.seqs
  from remaining
 where claims.id = remaining.id
   and remaining.open > 0
