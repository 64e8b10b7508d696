-- Record an applied migration.
insert into rota.migrations (version, name)
values (%(version)s, %(name)s)
