-- Return the progress of a job. No row: it has reported none.
select progress.at, progress.done, progress.total, progress.note
  from rota.progress
 where progress.job = %(job)s::bigint
