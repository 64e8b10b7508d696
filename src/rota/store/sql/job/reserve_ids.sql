-- Reserve `count` ids for jobs that COPY will insert. Return them in ascending order as one text: 1,2,3.
select string_agg(nextval('rota.ids')::text, ',') from generate_series(1, %(count)s::int)
