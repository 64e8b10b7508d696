-- Queues that are paused, by name: since when, by whom and why.
select pauses.queue, pauses.at, pauses.operator, pauses.reason
  from rota.pauses
 order by pauses.queue
