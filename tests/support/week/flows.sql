-- Runs of a flow of five jobs: one, then three, then one. A run's id ends in 0, its jobs' ids in 1 to 5. In one of
-- twenty the second task failed, and the last was skipped. In open runs the first two jobs are finished, one is held and
-- one is queued.

insert into rota.runs (id, created, flow, key, input, jobs)
select n * 10::bigint,
       spots.now - %(days)s * interval '1 day' * (1 - n::float8 / %(runs)s) - interval '2 hours', 'etl',
       case when n %% 500 = 0 then 'day-' || n end, json_build_object('day', n),
       array(select n * 10::bigint + part from generate_series(1, 5) as part)
  from generate_series(50, %(runs)s, 50) as n, spots;

insert into rota.jobs (id, run, created, priority, task, queue, args, rule, successors, inputs)
select run.id + part.n, run.id, run.created, 0, part.task, 'reports', '{}',
       case when part.n > 1 then 'all_succeeded' end::rota.rule,
       case part.n when 1 then array[run.id + 2, run.id + 3, run.id + 4] when 5 then array[run.id]
                   else array[run.id + 5] end,
       case part.n when 1 then null when 5 then json_build_object('left', run.id + 2, 'right', run.id + 3)
                   else json_build_object('rows', run.id + 1) end
  from rota.runs as run, spots,
       (values (1, 'etl.extract'), (2, 'etl.orders'), (3, 'etl.customers'), (4, 'etl.prices'), (5, 'etl.load'))
       as part (n, task)
 where run.flow = 'etl' and run.id < spots.queued;

insert into rota.outcomes (job, worker, at, seconds, state, attempt, result, error)
select job.id, 1, job.created + job.id %% 10 * interval '20 s', 20, told.state, 1,
       case told.state when 'succeeded' then '{"rows": 1200}'::json end,
       case told.state when 'failed' then pg_temp.error(job.id)
                       when 'skipped' then '{"type": "Skipped", "message": "a job it waits for failed"}'::json end
  from rota.jobs as job
 cross join lateral (
       select case when job.run / 500 %% 20 <> 3 or job.id %% 10 not in (2, 5) then 'succeeded'
                   when job.id %% 10 = 2 then 'failed' else 'skipped' end::rota.outcome as state) as told
 where job.run is not null;

insert into rota.outcomes (job, at, state, attempt)
select run.id, run.created + interval '2 min',
       case when run.id / 500 %% 20 = 3 then 'failed' else 'succeeded' end::rota.outcome, 1
  from rota.runs as run;

insert into rota.runs (id, created, flow, key, input, jobs)
select spots.flows + n * 10::bigint, spots.now - n * interval '1 s', 'etl', null, json_build_object('day', n),
       array(select spots.flows + n * 10::bigint + part from generate_series(1, 5) as part)
  from generate_series(0, %(open_flows)s - 1) as n, spots;

insert into rota.jobs (id, run, created, priority, task, queue, args, rule, successors, inputs)
select run.id + part.n, run.id, run.created, 0, part.task, 'reports', '{}',
       case when part.n > 1 then 'all_succeeded' end::rota.rule,
       case part.n when 1 then array[run.id + 2, run.id + 3, run.id + 4] when 5 then array[run.id]
                   else array[run.id + 5] end,
       case part.n when 1 then null when 5 then json_build_object('left', run.id + 2, 'right', run.id + 3)
                   else json_build_object('rows', run.id + 1) end
  from rota.runs as run, spots,
       (values (1, 'etl.extract'), (2, 'etl.orders'), (3, 'etl.customers'), (4, 'etl.prices'), (5, 'etl.load'))
       as part (n, task)
 where run.flow = 'etl' and run.id between spots.flows and spots.wide - 1;

insert into rota.outcomes (job, worker, seconds, state, attempt, result)
select job.id, 1, 2, 'succeeded', 1, '{"rows": 1}'
  from rota.jobs as job, spots
 where job.run between spots.flows and spots.wide - 1 and job.id %% 10 in (1, 2);

insert into rota.queued (seq, job, priority, queue, task)
select job.id, job.id, job.priority, job.queue, job.task
  from rota.jobs as job, spots
 where job.run between spots.flows and spots.wide - 1 and job.id %% 10 = 4;

insert into rota.waiting (job, open, attempt, rule, priority, queue, task, since)
select job.id, 2, 1, job.rule, job.priority, job.queue, job.task, job.created
  from rota.jobs as job, spots
 where job.run between spots.flows and spots.wide - 1 and job.id %% 10 = 5
 union all
select run.id, 1, 1, null, null, null, null, run.created
  from rota.runs as run, spots
 where run.id between spots.flows and spots.wide - 1;
