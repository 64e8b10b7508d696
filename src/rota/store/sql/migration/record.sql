-- Record an applied migration.
insert into rota.migrations (version, name, breaking, checksum)
values (%(version)s, %(name)s, %(breaking)s, %(checksum)s)
