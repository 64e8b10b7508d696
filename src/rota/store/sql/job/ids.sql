-- Reserve so many ids, rising, for jobs about to be copied in.
select nextval('rota.ids') from generate_series(1, %(count)s::int)
