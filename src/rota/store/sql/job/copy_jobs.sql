-- Copy jobs in whose ids are reserved and which have nothing of their own; copy_ready makes them ready.
copy rota.jobs (id, priority, task, queue, args) from stdin
