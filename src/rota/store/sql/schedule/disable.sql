-- Disable schedules that the code no longer declares. An earlier statement has locked them. A paused one keeps its
-- reason, and is paused again when it is declared again. Returns those that were not disabled before.
update rota.schedules
   set state = 'disabled', reason = 'the code does not declare it any more', queued = null,
       paused_reason = case when schedules.state = 'paused' then schedules.reason end
 where schedules.name = any(%(names)s::text[])
   and schedules.state <> 'disabled'
returning schedules.name
