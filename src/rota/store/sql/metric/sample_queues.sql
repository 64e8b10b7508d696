-- Record the queued jobs of each queue for the current minute, once per minute; only the oldest active worker does
-- this. A queue that has become empty gets one sample with 0; one that was empty before gets none.
insert into rota.queue_samples (minute, queue, queued, oldest_seconds, seq)
select date_trunc('minute', rota.clock()), sample.queue, sample.queued, sample.oldest_seconds,
       (select last_value from rota.ids)
  from (select where %(worker)s::bigint = (select min(workers.id) from rota.workers where workers.state = 'active')
                 and (select set_config('synchronous_commit', 'off', true)) is not null) as turn
 cross join lateral (
       select depths.queue, depths.queued, depths.oldest_seconds
         from rota.queue_depths() as depths
        union all
       select past.queue, 0, 0
         from rota.queue_samples as past
        where past.minute = (select max(queue_samples.minute)
                               from rota.queue_samples
                              where queue_samples.minute < date_trunc('minute', rota.clock()))
          and past.queued > 0
          and not exists (select from rota.queued where queued.queue = past.queue)
       ) as sample
    on conflict (queue, minute) do nothing
