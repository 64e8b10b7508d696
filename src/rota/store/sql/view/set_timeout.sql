-- From here to the end of the transaction no statement takes longer than this, and none is compiled: to make machine code of
-- what a page asks takes many times as long as to find it.
select set_config('statement_timeout', %(timeout_ms)s::int::text, true)
 where set_config('jit', 'off', true) is not null
