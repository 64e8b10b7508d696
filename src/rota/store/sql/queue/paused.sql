-- Queues that are paused, by name: since when, by whom and why.
select pauses.queue, pauses.at, pauses.who, pauses.why
  from rota.pauses
 order by pauses.queue
