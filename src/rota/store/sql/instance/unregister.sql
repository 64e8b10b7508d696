-- Remove an instance that no longer runs services.
delete from rota.instances where instances.id = %(instance)s::uuid
