-- Copy jobs in whose ids are reserved and which have nothing of their own but a trace. Otherwise as copy_jobs.
copy rota.jobs (id, priority, task, queue, args, trace) from stdin
