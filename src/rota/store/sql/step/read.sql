-- Return the journal entries of jobs in the order of their positions; for an open sleep or wait, also the seconds
-- until it ends and the signal received meanwhile.
select steps.job, steps.kind::text, steps.name, steps.number, steps.position, steps.main_branch, steps.open,
       steps.tries,
       extract(epoch from steps.wake_at - rota.clock())::float8, steps.result::text, steps.error::text,
       said.at is not null, said.payload::text, steps.branch_key
  from unnest(%(jobs)s::bigint[], %(runs)s::bigint[]) as given (job, run)
 cross join lateral (
       select steps.* from rota.steps where steps.job = given.job offset 0
       ) as steps
  left join lateral (
       select signals.at, signals.payload
         from rota.signals
        where steps.kind = 'wait'
          and steps.open
          and signals.run = given.run
          and signals.name = steps.name
          and signals.at is not null
       offset 0
       ) as said on true
 order by steps.job, steps.position
