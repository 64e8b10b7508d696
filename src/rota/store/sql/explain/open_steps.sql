-- Return the open steps of sleeping jobs: a sleep, a wait for a signal, or the next try of a step.
select steps.job, steps.kind::text, steps.name, steps.number, steps.tries, steps.at, steps.wake_at, steps.error
  from rota.steps
 where steps.job = any(%(jobs)s::bigint[])
   and (steps.open or (steps.kind = 'sleep' and steps.wake_at > rota.clock()))
 order by steps.job, steps.position
