-- For how many seconds there are counts; null: there are none.
select date_part('epoch', rota.clock() - min(tallies.minute)) from rota.tallies
