-- How far a job is, by its own account. No row: it has not said.
select progress.at, progress.done, progress.total, progress.note
  from rota.progress
 where progress.job = %(job)s::bigint
