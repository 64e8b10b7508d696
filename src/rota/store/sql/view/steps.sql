-- What a job's code has come to: the last so many, the last first, with how many there are. Results in full only
-- where asked.
select steps.kind::text, steps.name, steps.number, steps.position, steps.main_branch, steps.open, steps.tries, steps.at,
       steps.seconds, steps.wake_at, left(steps.result::text, 200),
       case when %(with_values)s::boolean then steps.result end, steps.error, count(*) over ()
  from rota.steps
 where steps.job = %(job)s::bigint
 order by steps.position desc
 limit %(limit)s::int
