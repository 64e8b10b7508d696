-- Cancel a run; see `rota.cancel`.
select rota.cancel(%(run)s::bigint)
