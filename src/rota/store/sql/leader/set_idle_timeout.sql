-- Let the server end this session, and release its locks, after `timeout` without a statement.
select set_config('idle_session_timeout', %(timeout)s::text, false)
