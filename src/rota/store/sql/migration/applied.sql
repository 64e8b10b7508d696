-- Return the migrations that were applied to this schema.
select migrations.version, migrations.name
  from rota.migrations
 order by migrations.version
