-- Ranges of ids, and the meaning of an id: forty tasks in eight queues, a few of which have most of the runs.

create temp table spots as
select (%(runs)s + 1) * 10 as queued,
       (%(runs)s + 1 + %(queued)s) * 10 as asleep,
       (%(runs)s + 1 + %(queued)s + %(asleep)s) * 10 as held,
       (%(runs)s + 1 + %(queued)s + %(asleep)s + %(workers)s * %(held)s) * 10 as flows,
       (%(runs)s + 1 + %(queued)s + %(asleep)s + %(workers)s * %(held)s + %(open_flows)s) * 10 as wide,
       (%(runs)s + 1 + %(queued)s + %(asleep)s + %(workers)s * %(held)s + %(open_flows)s) * 10
           + %(nodes)s + 10 as aside,
       rota.clock() as now;

create function pg_temp.kind(n bigint) returns int immutable language sql
return floor(39.99 * power((n * 7919 %% 9973) / 9973.0, 2))::int;
create function pg_temp.task(kind int) returns text immutable language sql
return (array['orders', 'mail', 'media', 'prices', 'search', 'ledger', 'reports', 'crawl'])[kind / 5 + 1] || '.'
       || (array['collect', 'check', 'write', 'send', 'tidy_up'])[kind %% 5 + 1];
create function pg_temp.queue(kind int) returns text immutable language sql
return (array['default', 'mail', 'media', 'prices', 'search', 'ledger', 'reports', 'crawl'])[kind / 5 + 1];
create function pg_temp.state(n bigint) returns rota.outcome immutable language sql
return case when n %% 100 = 7 then 'failed' when n %% 250 = 11 then 'cancelled' when n %% 1000 = 13 then 'expired'
            else 'succeeded' end::rota.outcome;
create function pg_temp.error(n bigint) returns json immutable language sql
return json_build_object(
       'type', (array['TimeoutError', 'ValueError', 'ConnectionResetError'])[n %% 3 + 1],
       'message', 'the other side said no to ' || n, 'attempt', 3,
       'traceback', 'Traceback (most recent call last):' || repeat(E'\n  File "app.py", line 12, in work', 8));
