-- Copy the queue rows of jobs that are queued at once, each with its id as `seq`. COPY is three times as fast as
-- INSERT, because it writes whole pages to the WAL instead of rows.
copy rota.queued (seq, job, priority, queue, task) from stdin
