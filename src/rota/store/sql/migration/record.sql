-- This migration has been applied.
insert into rota.migrations (version, name)
values (%(version)s, %(name)s)
