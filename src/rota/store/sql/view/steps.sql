-- Return the latest journal entries of a job, latest first, with their total number. Full results only with
-- `with_values`.
select steps.kind::text, steps.name, steps.number, steps.position, steps.main_branch, steps.open, steps.tries, steps.at,
       steps.seconds, steps.wake_at, left(steps.result::text, 200),
       case when %(with_values)s::boolean then steps.result end, steps.error, count(*) over ()
  from rota.steps
 where steps.job = %(job)s::bigint
 order by steps.position desc
 limit %(limit)s::int
