-- Return the migrations that were applied to this schema.
select migrations.version, migrations.name, migrations.breaking, migrations.checksum
  from rota.migrations
 order by migrations.version
