-- Copy the places of jobs that are ready at once, each under its own id. COPY writes whole pages to the
-- log where a statement writes rows: three times as fast.
copy rota.queued (seq, job, priority, queue, task) from stdin
