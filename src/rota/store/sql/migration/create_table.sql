-- Create the table of applied migrations.
create table if not exists rota.migrations (
    version  integer primary key,
    name     text not null,
    breaking boolean not null,
    checksum text not null,
    at       timestamptz not null default now()
)
