-- Retry a run that did not succeed; see `rota.retry`. Returns the queues that received jobs; null if there is nothing
-- to retry.
select rota.retry(%(run)s::bigint, %(attempt)s::smallint)
