-- Wide run: a job, then many, then one; half of them are finished, the rest wait for their predecessors.

insert into rota.runs (id, flow, input, jobs)
select spots.wide, 'wide', '{"pages": 2000}', array(select spots.wide + n from generate_series(1, %(nodes)s) as n)
  from spots;

insert into rota.jobs (id, run, priority, task, queue, args, rule, successors, inputs)
select spots.wide + n, spots.wide, 0,
       case n when 1 then 'wide.list' when %(nodes)s then 'wide.merge' else 'wide.page' end, 'crawl', '{}',
       case when n > 1 then 'all_succeeded' end::rota.rule,
       case n when 1 then array(select spots.wide + each from generate_series(2, %(nodes)s - 1) as each)
              when %(nodes)s then array[spots.wide] else array[spots.wide + %(nodes)s] end,
       case when n > 1 and n < %(nodes)s then json_build_object('page', spots.wide + 1) end
  from generate_series(1, %(nodes)s) as n, spots;

insert into rota.outcomes (job, worker, at, seconds, state, attempt, result)
select spots.wide + n, n %% %(workers)s + 1, spots.now + n * interval '10 ms', 0.2 + n %% 7, 'succeeded', 1, '7'
  from generate_series(1, %(nodes)s / 2) as n, spots;

insert into rota.queued (seq, job, priority, queue, task)
select spots.wide + n, spots.wide + n, 0, 'crawl', 'wide.page'
  from generate_series(%(nodes)s / 2 + 1, %(nodes)s - 1) as n, spots;

insert into rota.waiting (job, open, rule, priority, queue, task)
select spots.wide + %(nodes)s, %(nodes)s - 1 - %(nodes)s / 2, 'all_succeeded'::rota.rule, 0, 'crawl', 'wide.merge'
  from spots
 union all
select spots.wide, 1, null, null, null, null from spots;
