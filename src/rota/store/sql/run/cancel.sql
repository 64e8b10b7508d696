-- Cancel a run, as any language can.
select rota.cancel(%(run)s::bigint)
