-- Delete statistics and queue samples that are too old, at most `limit` of each. Returns the number of rows deleted.
with old_tallies as (
    delete from rota.minute_stats
     where minute_stats.ctid = any(array(
           select old.ctid
             from rota.minute_stats as old
            where old.minute < rota.clock() - make_interval(secs => %(age)s::float8)
            order by old.minute
            limit %(limit)s::int))
    returning 1
),
old_samples as (
    delete from rota.queue_samples
     where queue_samples.ctid = any(array(
           select old.ctid
             from rota.queue_samples as old
            where old.minute < rota.clock() - make_interval(secs => %(age)s::float8)
            order by old.minute
            limit %(limit)s::int))
    returning 1
)
select (select count(*) from old_tallies) + (select count(*) from old_samples)
