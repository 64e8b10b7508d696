-- A worker ends; it holds nothing any more.
with forgotten as (
    delete from rota.skills where skills.worker = %(worker)s::bigint
)
delete from rota.workers where workers.id = %(worker)s::bigint
