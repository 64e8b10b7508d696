-- Calls that are made once, by their keys, those after a key and between two others: who makes each, or made it, and what
-- it came to.
select onces.key, onces.token, onces.host, onces.pid, onces.label, onces.began,
       case when onces.finished is not null then 'finished'
            when onces.expires > rota.clock() then 'running'
            else 'lost' end as state,
       onces.expires, onces.finished, nullif(onces.until, 'infinity') as until, onces.result
  from rota.onces
 where onces.key > %(after)s::text
   and onces.key >= %(first)s::text
   and onces.key < %(beyond)s::text
 order by onces.key
 limit %(limit)s::int
