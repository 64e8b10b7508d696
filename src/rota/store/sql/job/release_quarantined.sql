-- Let a run, or one of its jobs, out of quarantine. Answers how many jobs that were.
select rota.release(%(run)s::bigint)
