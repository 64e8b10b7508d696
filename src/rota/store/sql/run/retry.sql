-- Try a run that ended badly once more, as any language can. Answers the queues that have news; null: there is
-- nothing to try again.
select rota.retry(%(run)s::bigint, %(attempt)s::smallint)
