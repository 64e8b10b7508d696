-- Whether ends are left to be passed on to whoever waits for them.
select exists (select from rota.pending_releases)
