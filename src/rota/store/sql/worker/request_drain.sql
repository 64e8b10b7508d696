-- Request that a worker finishes its jobs and stops. Returns its state; null if there is no such worker.
select rota.drain(%(worker)s::bigint)
