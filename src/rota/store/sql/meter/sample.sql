-- Write down what is ready, for the minute that has begun. The worker that has been there longest does, and once. Of a
-- queue that has become empty that is written, too; of one that was empty before, nothing.
insert into rota.samples (minute, queue, ready, oldest, seq)
select date_trunc('minute', rota.clock()), sample.queue, sample.ready, sample.oldest,
       (select last_value from rota.ids)
  from (select where %(worker)s::bigint = (select min(workers.id) from rota.workers where workers.state = 'active')
                 and (select set_config('synchronous_commit', 'off', true)) is not null) as turn
 cross join lateral (
       select depths.queue, depths.ready, depths.oldest
         from rota.depths() as depths
        union all
       select past.queue, 0, 0
         from rota.samples as past
        where past.minute = (select max(samples.minute)
                               from rota.samples
                              where samples.minute < date_trunc('minute', rota.clock()))
          and past.ready > 0
          and not exists (select from rota.ready where ready.queue = past.queue)
       ) as sample
    on conflict (queue, minute) do nothing
