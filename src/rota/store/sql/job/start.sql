-- Start one job. Return its run and true if this call created it.
select started.run, started.created
  from rota.start(
       task => %(task)s::text, args => %(args)s::text::json, queue => %(queue)s::text,
       priority => %(priority)s::int, key => %(key)s::text,
       unique_for => %(unique_for)s::interval, unique_open => %(unique_open)s::boolean,
       at => %(at)s::timestamptz, delay => %(delay)s::interval,
       expires => %(expires)s::timestamptz, expires_in => %(expires_in)s::interval,
       options => %(options)s::text::json, notify => %(notify)s::boolean, trace => %(trace)s::text
       ) as started
