-- How many jobs are in each place.
select (select count(*) from rota.ready) as ready,
       (select count(*) from rota.asleep) as asleep,
       (select count(*) from rota.quarantine) as quarantined,
       (select coalesce(sum(cardinality(claims.jobs)), 0) from rota.claims)::bigint as running
