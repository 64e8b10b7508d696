-- Return the server's version, settings for durability and read-only mode, connections, and the role with its rights.
select current_setting('server_version') as version, current_setting('server_version_num')::int as number,
       pg_is_in_recovery() as standby, current_setting('default_transaction_read_only')::boolean as read_only,
       current_setting('fsync')::boolean as fsync, current_setting('full_page_writes')::boolean as whole_pages,
       current_setting('max_connections')::int as most,
       (select count(*)::int
          from pg_catalog.pg_stat_activity as activity
         where activity.backend_type = 'client backend' or activity.backend_type is null) as connections,
       (select role.rolsuper or pg_has_role(current_user, 'pg_read_all_stats', 'usage')
          from pg_catalog.pg_roles as role
         where role.rolname = current_user) as sees_all,
       current_user::text as me, quote_ident(current_user) as quoted
