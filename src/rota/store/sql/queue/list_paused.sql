-- Return the paused queues by name, each with its time, operator and reason.
select pauses.queue, pauses.at, pauses.operator, pauses.reason
  from rota.pauses
 order by pauses.queue
