-- Pass on ends that could not be passed on before. Answers the queues that have news, the runs that ended, and
-- whether there is more.
select settled.queues, settled.runs, settled.rest from rota.release_pending(%(limit)b::int) as settled
