-- Release the quarantined jobs of a run, or one job, to the queue. Return their number.
select rota.release(%(run)s::bigint)
