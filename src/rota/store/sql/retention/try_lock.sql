-- Whether it is this worker's turn to remove what is old. One at a time: whoever has the lock, until it commits.
--
-- Of the workers that are there it is the one that has been there longest, so that one of them remembers
-- where to go on; null is somebody who asks for once. Nobody waits. What follows in the transaction is planned
-- over indexes, whatever the statistics say, and the commit is not flushed to disk: what a crash brings back
-- is removed again.
select (%(worker)s::bigint is null
        or %(worker)s::bigint = (
           select min(workers.id)
             from rota.workers
            where workers.state = 'active'))
       and pg_try_advisory_xact_lock(%(namespace)s::int, %(key)s::int)
 where (select count(set_config(setting.name, 'off', true))
          from unnest(array['synchronous_commit', 'enable_seqscan', 'enable_bitmapscan', 'enable_mergejoin',
                            'jit']) as setting (name)) > 0
