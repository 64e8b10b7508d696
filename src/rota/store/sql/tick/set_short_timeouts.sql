-- For the rest of the transaction: whoever stops in the middle of it, frozen or cut off, keeps what it has locked for two
-- seconds and no longer; and what is looked for is looked for by index.
select set_config('idle_in_transaction_session_timeout', '2s', true), set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('jit', 'off', true)
