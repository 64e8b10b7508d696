-- Disable schedules that the code declared once and declares no more; they are locked by now. One that was paused will be
-- again when it is declared again. Answers those that were not disabled.
update rota.schedules
   set state = 'disabled', reason = 'the code does not declare it any more', queued = null,
       paused_reason = case when schedules.state = 'paused' then schedules.reason end
 where schedules.name = any(%(names)s::text[])
   and schedules.state <> 'disabled'
returning schedules.name
