-- What the code of jobs that sleep waits for: a time, a signal, its next try at a step.
select steps.job, steps.kind::text, steps.name, steps.number, steps.tries, steps.at, steps.wake_at, steps.error
  from rota.steps
 where steps.job = any(%(jobs)s::bigint[])
   and (steps.open or (steps.kind = 'sleep' and steps.wake_at > rota.clock()))
 order by steps.job, steps.position
