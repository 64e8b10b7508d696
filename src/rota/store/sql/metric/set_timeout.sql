-- Limit each statement of the transaction to this many milliseconds: reading metrics must not block for long.
select set_config('statement_timeout', %(timeout)s::text, true)
