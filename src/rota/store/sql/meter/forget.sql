-- Remove counts and samples that are too old, some at a time. Answers how many went.
with old_tallies as (
    delete from rota.tallies
     where tallies.ctid = any(array(
           select old.ctid
             from rota.tallies as old
            where old.minute < rota.clock() - make_interval(secs => %(age)s::float8)
            order by old.minute
            limit %(most)s::int))
    returning 1
),
old_samples as (
    delete from rota.samples
     where samples.ctid = any(array(
           select old.ctid
             from rota.samples as old
            where old.minute < rota.clock() - make_interval(secs => %(age)s::float8)
            order by old.minute
            limit %(most)s::int))
    returning 1
)
select (select count(*) from old_tallies) + (select count(*) from old_samples)
