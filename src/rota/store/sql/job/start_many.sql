-- Start jobs without keys, to be queued at once or to sleep until a given time. Return their ids in the order given.
with given as materialized (
    select nextval('rota.ids') as id, given.*
      from unnest(%(tasks)b::text[], %(args)b::text[], %(queues)b::text[], %(priorities)b::smallint[],
                  %(ats)b::timestamptz[], %(delays)b::float8[], %(expires)b::timestamptz[],
                  %(expires_in)b::float8[], %(options)b::text[], %(traces)b::text[])
           as given (task, args, queue, priority, at, delay, expires, expires_in, options, trace)
),
written as (
    insert into rota.jobs (id, expires, priority, task, queue, args, options, trace)
    select given.id,
           coalesce(given.expires, rota.clock() + make_interval(secs => given.expires_in)),
           given.priority, given.task, given.queue, given.args::json, given.options::json, given.trace
      from given
),
timed as materialized (
    select given.id, given.priority, given.queue, given.task,
           coalesce(given.at, rota.clock() + make_interval(secs => given.delay)) as wake_at
      from given
),
slept as (
    insert into rota.sleeping (job, wake_at, priority, queue, task)
    select timed.id, timed.wake_at, timed.priority, timed.queue, timed.task
      from timed
     where timed.wake_at > rota.clock()
),
enqueued as (
    insert into rota.queued (seq, job, priority, queue, task)
    select timed.id, timed.id, timed.priority, timed.queue, timed.task
      from timed
     where timed.wake_at is null or timed.wake_at <= rota.clock()
)
select given.id from given
