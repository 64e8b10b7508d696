-- Ask a worker to finish what it has and leave. Answers its state; null: there is no such worker.
select rota.drain(%(worker)s::bigint)
