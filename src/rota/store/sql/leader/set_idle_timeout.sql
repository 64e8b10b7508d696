-- Have the server end this session, and with it all it holds, once it has heard nothing for so long.
select set_config('idle_session_timeout', %(timeout)s::text, false)
