-- Return the creation time of a run or a job.
select jobs.created from rota.jobs where jobs.id = %(id)s::bigint
 union all
select runs.created from rota.runs where runs.id = %(id)s::bigint
