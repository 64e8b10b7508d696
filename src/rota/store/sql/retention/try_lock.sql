-- Try to lock retention for this transaction. Returns true if this worker may remove old runs now; one worker at a
-- time.
--
-- Only the oldest active worker tries, so that one worker remembers the position to continue from. `worker` is null
-- for a single call by an operator. The lock is never waited for. The rest of the transaction uses indexes,
-- independent of the table's statistics. The commit is not flushed to disk: rows that a crash restores are removed
-- again.
select (%(worker)s::bigint is null
        or %(worker)s::bigint = (
           select min(workers.id)
             from rota.workers
            where workers.state = 'active'))
       and pg_try_advisory_xact_lock(%(namespace)s::int, %(key)s::int)
 where (select count(set_config(setting.name, 'off', true))
          from unnest(array['synchronous_commit', 'enable_seqscan', 'enable_bitmapscan', 'enable_mergejoin',
                            'jit']) as setting (name)) > 0
