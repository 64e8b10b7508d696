-- breaking: no
-- What pages need to find things among very many. Tables come in the order in which workers take them, for
-- what is indexed cannot be written to until all of it is done: ticks and then their runs, the audit log last.

-- Schedules

-- Ticks that came to nothing, among very many that did not.
create index ticks_lost on rota.ticks (at) where state in ('missed', 'refused');

-- Flows

-- The last runs of one flow, among those of all.
create index runs_flow on rota.runs (flow, id) where flow is not null and parent is null;

-- Locks

-- Those that are held, among very many that nobody holds. Taking and giving back pay for it; renewing does not.
create index locks_held on rota.locks (name, slot) where instance is not null;

-- Audit

-- What one of many did, what was done of a kind, what was done to a thing. Of a long name the beginning: an index takes
-- no more, and nothing may keep a deed from being written down.
create index audit_operator on rota.audit (left(operator, 200), id);
create index audit_action on rota.audit (action, id);
create index audit_subject on rota.audit (left(subject, 200), id);
