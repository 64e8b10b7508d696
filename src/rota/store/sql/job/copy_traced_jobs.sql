-- Copy jobs with reserved ids and a trace, but without options, key or times. Otherwise as `job/copy_jobs`.
copy rota.jobs (id, priority, task, queue, args, trace) from stdin
