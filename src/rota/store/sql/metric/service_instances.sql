-- Return the live instances that can run services, and the services each one runs.
select instances.host, instances.pid, instances.version, instances.started, instances.last_seen, instances.services,
       instances.running
  from rota.instances
 where instances.expires > rota.clock()
 order by instances.started, instances.id
 limit 1000
