-- Wake whoever listens: the queues that have news. Nobody loses work if this is lost, so the commit
-- is not flushed to disk.
select pg_notify(%(channel)s::text, news.word)
  from unnest(%(payloads)b::text[]) as news (word)
 where (select set_config('synchronous_commit', 'off', true)) is not null
