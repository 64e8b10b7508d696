-- Limit each statement of the transaction to this many milliseconds, and disable JIT: compiling the queries of a page
-- takes much longer than running them.
select set_config('statement_timeout', %(timeout_ms)s::int::text, true)
 where set_config('jit', 'off', true) is not null
