-- breaking: no
-- Indexes for the dashboard's pages. The tables are listed in the order in which workers lock them (ticks, then runs,
-- audit last), because a table cannot be written to while an index on it is being built, until the transaction ends.

-- Schedules

-- Finds the few missed and refused ticks among many.
create index ticks_lost on rota.ticks (at) where state in ('missed', 'refused');

-- Flows

-- Finds the latest runs of one flow.
create index runs_flow on rota.runs (flow, id) where flow is not null and parent is null;

-- Locks

-- Finds the few locks that are held among many free ones. Acquiring and releasing maintain it; renewing does not.
create index locks_held on rota.locks (name, slot) where instance is not null;

-- Audit

-- Find the actions of an operator, of a kind, on a subject. Only the beginning of long names is indexed: index entries
-- have a maximum size, and that must not prevent an audit row from being written.
create index audit_operator on rota.audit (left(operator, 200), id);
create index audit_action on rota.audit (action, id);
create index audit_subject on rota.audit (left(subject, 200), id);
