-- Copy jobs with reserved ids and without options, key or times. `job/copy_queued` then queues them.
copy rota.jobs (id, priority, task, queue, args) from stdin
