-- Return once calls by key, after a key and between two others: the caller, the state and the result.
select once_calls.key, once_calls.token, once_calls.host, once_calls.pid, once_calls.label, once_calls.started,
       case when once_calls.finished is not null then 'finished'
            when once_calls.expires > rota.clock() then 'running'
            else 'lost' end as state,
       once_calls.expires, once_calls.finished, nullif(once_calls.retained_until, 'infinity') as retained_until,
       once_calls.result
  from rota.once_calls
 where once_calls.key > %(after)s::text
   and once_calls.key >= %(prefix)s::text
   and once_calls.key < %(prefix_end)s::text
 order by once_calls.key
 limit %(limit)s::int
