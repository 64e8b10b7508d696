-- What follows in the transaction takes so many milliseconds at most: nobody waits long for figures.
select set_config('statement_timeout', %(timeout)s::text, true)
