-- Return true if releases of successors are pending.
select exists (select from rota.pending_releases)
