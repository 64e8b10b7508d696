-- Copy jobs in whose ids are reserved; ready at once, see copy_ready.
copy rota.jobs (id, lane, task, queue, args) from stdin
