-- When a run, or a job, was created.
select jobs.created from rota.jobs where jobs.id = %(id)s::bigint
 union all
select runs.created from rota.runs where runs.id = %(id)s::bigint
