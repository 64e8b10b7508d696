-- Pause a schedule, or resume it from a given time. Resuming resets its failure count.
update rota.schedules
   set state = %(state)s::rota.schedule_state, reason = %(reason)s, next = %(next)s::timestamptz,
       due = %(due)s::timestamptz,
       failures = case when %(state)s = 'active' then 0 else schedules.failures end,
       queued = case when %(state)s = 'active' then schedules.queued end
 where schedules.name = %(name)s::text
