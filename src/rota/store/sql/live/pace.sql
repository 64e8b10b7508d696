-- What ended in each queue in the last minutes, by minute: how many jobs, how many of them not well, how many attempts
-- failed and are tried again, and how long jobs had waited to be taken.
select tallies.queue, extract(epoch from tallies.minute)::bigint as minute,
       sum(tallies.succeeded + tallies.failed + tallies.cancelled + tallies.expired + tallies.skipped)::bigint as ended,
       sum(tallies.failed + tallies.expired)::bigint as failed, sum(tallies.retried)::bigint as retried,
       sum(tallies.waits)::bigint as waits, sum(tallies.waited)::float8 as waited
  from rota.tallies
 where tallies.minute >= date_trunc('minute', rota.clock()) - make_interval(mins => %(minutes)s::int)
 group by tallies.queue, tallies.minute
 order by tallies.queue, tallies.minute
 limit 1000
