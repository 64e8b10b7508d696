-- Set limits for the rest of the transaction. A process that freezes or is disconnected in the middle of it keeps its
-- locks for at most two seconds, and all statements use indexes.
select set_config('idle_in_transaction_session_timeout', '2s', true), set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('jit', 'off', true)
