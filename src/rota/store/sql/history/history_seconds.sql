-- For how many seconds there are counts; null: there are none.
select date_part('epoch', rota.clock() - min(minute_stats.minute)) from rota.minute_stats
