-- Reserve so many ids for jobs about to be copied in. Answers them rising, as one text: 1,2,3.
select string_agg(nextval('rota.ids')::text, ',') from generate_series(1, %(count)s::int)
