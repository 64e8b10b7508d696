-- Notify the listeners of a channel, usually with the queues that received jobs. Losing a notification is safe,
-- because listeners also poll, so the commit is not flushed to disk.
select pg_notify(%(channel)s::text, news.word)
  from unnest(%(payloads)b::text[]) as news (word)
 where (select set_config('synchronous_commit', 'off', true)) is not null
