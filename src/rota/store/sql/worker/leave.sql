-- A worker ends; it holds nothing any more.
delete from rota.workers where workers.id = %(worker)s::bigint
