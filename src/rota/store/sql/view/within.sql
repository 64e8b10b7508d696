-- From here to the end of the transaction no statement takes longer than this.
select set_config('statement_timeout', %(milliseconds)s::int::text, true)
