-- Count the jobs that are queued, sleeping, quarantined and running.
select (select count(*) from rota.queued) as queued,
       (select count(*) from rota.sleeping) as sleeping,
       (select count(*) from rota.quarantine) as quarantined,
       (select coalesce(sum(cardinality(claims.jobs)), 0) from rota.claims)::bigint as running
