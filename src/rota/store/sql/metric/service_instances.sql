-- Instances that stand by for services, and which of those they run.
select instances.host, instances.pid, instances.version, instances.started, instances.last_seen, instances.services,
       instances.running
  from rota.instances
 where instances.expires > rota.clock()
 order by instances.started, instances.id
 limit 1000
