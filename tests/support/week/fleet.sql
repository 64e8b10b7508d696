-- Workers, ticks of schedules, locks and leaders, alerts and audit rows.

insert into rota.workers (host, pid, version, engine, queues, tasks, capacity, running, started, last_beat, state, ended)
select 'node-' || n %% 20 || '.example.net', 1000 + n, '2026.' || n %% 3, '1.0',
       array['default', 'mail', 'media', 'prices', 'search', 'ledger', 'reports', 'crawl'],
       array(select distinct jobs.task from rota.jobs where jobs.id < 4000)
           || array['wide.list', 'wide.page', 'wide.merge'],
       20, case when n <= %(workers)s then %(held)s else 0 end, spots.now - n * interval '1 min', spots.now,
       case when n <= %(workers)s then 'active' when n %% 7 = 0 then 'dead' else 'stopped' end::rota.worker_state,
       case when n > %(workers)s then spots.now - n * interval '1 min' end
  from generate_series(1, %(workers)s + %(gone)s) as n, spots
 order by n;

insert into rota.schedules (name, declared, kind, target, input, tenant, cron, every, state, anchor, next, due, ticks,
                            runs, last, run, failures, last_success, last_failure)
select 'tenant-' || n / 5 || '.' || pg_temp.task(n %% 40), n %% 2 = 0, 'task', pg_temp.task(n %% 40), '{"tenant": 1}',
       't' || n / 5, case when n %% 2 = 0 then '*/5 * * * *' end, case when n %% 2 = 1 then 300 end,
       case when n %% 25 = 0 then 'paused' else 'active' end::rota.schedule_state, date_trunc('hour', spots.now),
       spots.now + interval '5 min', spots.now + interval '5 min', %(ticks)s, %(ticks)s, spots.now, 10, n %% 40 / 38,
       spots.now, case when n %% 40 > 37 then spots.now end
  from generate_series(0, %(schedules)s - 1) as n, spots;

insert into rota.ticks (schedule, tick, number, state, at, host, pid, run, outcome, ended)
select schedule.name, date_trunc('minute', spots.now) - n * interval '5 min', %(ticks)s - n,
       case when n %% 17 = 0 then 'skipped' else 'started' end, spots.now - n * interval '5 min', 'node-1', 7,
       case when n %% 17 <> 0 then n * 10 end, case when n %% 17 <> 0 then 'succeeded' end::rota.outcome,
       case when n %% 17 <> 0 then spots.now - n * interval '5 min' end
  from rota.schedules as schedule, generate_series(0, %(ticks)s - 1) as n, spots;

insert into rota.alerts (kind, subject, message, raised, cleared, host, pid, deliver_at)
select (array['worker_dead', 'queue_old', 'schedule_late', 'lock_held'])[n %% 4 + 1], 'subject-' || n,
       'something that somebody should look at, number ' || n, spots.now - n * interval '1 min',
       case when n > 30 then spots.now - n * interval '50 s' end, 'node-1', 7, null
  from generate_series(1, 30 + %(notes)s / 10) as n, spots;

insert into rota.audit (at, operator, action, subject, detail)
select spots.now - (%(notes)s - n) * interval '10 s', (array['ada', 'grace', 'edsger'])[n %% 3 + 1],
       (array['cancel run', 'retry run', 'pause schedule', 'drain worker'])[n %% 4 + 1], (n * 10)::text,
       '{"answer": "done"}'
  from generate_series(1, %(notes)s) as n, spots;

insert into rota.locks (name, slot, token, instance, host, pid, label, acquired, expires)
select 'customer-' || n, case when n %% 10 = 0 then 1 else 0 end, nextval('rota.tokens'),
       case when n %% 3 > 0 then gen_random_uuid() end, 'node-' || n %% 20, 1000 + n, 'billing',
       spots.now - interval '1 min', spots.now + interval '1 day'
  from generate_series(1, %(schedules)s * 4) as n, spots;

insert into rota.leaders (name, term, instance, host, pid, label, since, expires)
select 'leader-' || n, n, gen_random_uuid(), 'node-' || n %% 20, 1000 + n, 'billing', spots.now,
       spots.now + interval '1 day'
  from generate_series(1, 20) as n, spots;

insert into rota.instances (id, host, pid, label, version, expires, services, running)
select gen_random_uuid(), 'node-' || n %% 20, 1000 + n, 'billing', '2026.1', spots.now + interval '1 day',
       array['feed-1', 'feed-2'], case when n < 3 then array['feed-' || n] else '{}' end
  from generate_series(1, %(workers)s) as n, spots;

insert into rota.services (name, every, iteration, started)
select 'feed-' || n, 10, 1000, spots.now from generate_series(1, 20) as n, spots;

insert into rota.iterations (service, number, term, instance, host, pid, started, ended, outcome)
select 'feed-' || n, i, 1, gen_random_uuid(), 'node-1', 7, spots.now - (1000 - i) * interval '10 s',
       spots.now - (1000 - i) * interval '10 s', 'succeeded'
  from generate_series(1, 20) as n, generate_series(1, 1000) as i, spots;

insert into rota.once_calls (key, token, instance, nonce, host, pid, label, started, expires, finished, retained_until, result)
select 'charge-' || n, nextval('rota.tokens'), gen_random_uuid(), gen_random_uuid(), 'node-1', 7, 'billing',
       spots.now - n * interval '1 s', spots.now, spots.now, spots.now + interval '1 day', '{"ok": true}'
  from generate_series(1, %(notes)s) as n, spots;

insert into rota.rate_limits (name, refilled_at, interval_seconds, last_used)
select 'feed-' || n, spots.now, 0.1, spots.now from generate_series(1, 50) as n, spots;
