-- Which migrations this schema has had.
select migrations.version, migrations.name
  from rota.migrations
 order by migrations.version
