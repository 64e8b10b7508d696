-- An instance runs no services any more.
delete from rota.instances where instances.id = %(instance)s::uuid
