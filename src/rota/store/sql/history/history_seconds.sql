-- Return the age of the oldest row of `minute_stats` in seconds. Null if there is none.
select date_part('epoch', rota.clock() - min(minute_stats.minute)) from rota.minute_stats
