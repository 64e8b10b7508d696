-- Release successors that could not be released before. Returns the queues that received jobs, the runs that finished,
-- and true if there are more.
select settled.queues, settled.runs, settled.has_pending from rota.release_pending(%(limit)b::int) as settled
