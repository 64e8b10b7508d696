-- How many alerts are open.
select count(*) from rota.alerts where alerts.cleared is null
