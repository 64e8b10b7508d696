-- Read how schedules are defined, and in what state they are: those of these names, and others that code has declared for
-- these targets and that are not disabled. Nothing is locked.
select schedules.name, schedules.declared, schedules.kind, schedules.target, schedules.input, schedules.tenant,
       schedules.cron, schedules.tz, schedules.every, schedules.at, schedules.overlap, schedules.catch_up,
       schedules.at_most, schedules.grace, schedules.jitter, schedules.starts, schedules.ends, schedules.max_runs,
       schedules.pause_after, schedules.queue, schedules.state::text
  from rota.schedules
 where schedules.name = any(%(names)s::text[])
    or schedules.declared and schedules.state <> 'disabled' and schedules.target = any(%(targets)s::text[])
