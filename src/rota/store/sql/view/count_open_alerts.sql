-- Count the open alerts.
select count(*) from rota.alerts where alerts.cleared is null
