-- Copy the places of jobs that are ready at once.
copy rota.ready (seq, job, lane, queue, task) from stdin
