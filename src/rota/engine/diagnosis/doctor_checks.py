"""The checks of `rota doctor`: schema, server and work.

| area | checks |
| --- | --- |
| schema | version that this Rota works with; state of tables and indexes |
| server | version, settings, and sessions that hold back cleanup |
| work | workers for the jobs, and jobs that no worker claims |
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from rota.model.check_result import CheckResult, Level, format_size, level_for
from rota.model.text import counted, in_one_unit
from rota.store import migrate, queues
from rota.store.database import Database
from rota.store.query import Query
from rota.store.read import doctor, runs
from rota.store.read.doctor import SnapshotHolderRow

NOTICE_DEAD_ROWS, PROBLEM_DEAD_ROWS = 20_000, 500_000
"""Dead rows from which a table is reported, if it has no more live rows than dead ones."""


_SCHEMA_FIXES = {
    "missing": "rota db migrate",
    "outdated": "rota db migrate",
    "too new": "pip install --upgrade pgrota",
}


async def check_schema(context: CheckContext) -> list[CheckResult]:
    compared = await migrate.compare_schema(context.database)
    if compared.error is not None:
        count = len(compared.changed or compared.newer or compared.pending)
        fix = _SCHEMA_FIXES.get(compared.state)
        message = str(compared.error)
        return [CheckResult("schema", "problem", message, count, "migrations", fix)]
    count = len(compared.applied)
    if newer := compared.newer:
        message = (
            f"schema {context.schema!r} has migrations of a newer Rota up to {newer[-1].label}; this "
            "version can use them"
        )
        return [CheckResult("schema", "notice", message, len(newer), "migrations")]
    message = f"schema {context.schema!r} has all {count} migrations"
    return [CheckResult("schema", "ok", message, count, "migrations")]


async def check_dead_rows(context: CheckContext) -> list[CheckResult]:
    tables = await context.fetch(doctor.tables(context.schema))
    # A fast queue has this many within a minute, which is fine while autovacuum removes them.
    recent_seconds = 2 * (await context.fetch_one(doctor.autovacuum())).naptime_seconds
    results = []
    for each in tables:
        if each.dead_rows < NOTICE_DEAD_ROWS or each.dead_rows < each.live_rows:
            continue
        if each.vacuumed_seconds_ago is not None and each.vacuumed_seconds_ago <= recent_seconds:
            continue
        ago = (
            "never"
            if each.vacuumed_seconds_ago is None
            else f"{in_one_unit(each.vacuumed_seconds_ago)} ago"
        )
        table = f"{context.schema}.{each.name}"
        message = (
            f"{table} has {each.dead_rows:,} dead rows, {each.live_rows:,} live rows and "
            f"{format_size(each.bytes)}; it was last vacuumed {ago}"
        )
        level = level_for(each.dead_rows, NOTICE_DEAD_ROWS, PROBLEM_DEAD_ROWS)
        results.append(
            CheckResult(
                "dead rows", level, message, each.dead_rows, "rows", f"vacuum (analyze) {table};"
            )
        )
    if results:
        return results
    max_dead = max((each.dead_rows for each in tables), default=0)
    message = f"no table has more than {max_dead:,} dead rows"
    return [CheckResult("dead rows", "ok", message, max_dead, "rows")]


async def check_indexes(context: CheckContext) -> list[CheckResult]:
    if (await migrate.compare_schema(context.database)).state != "up to date":
        return [CheckResult("indexes", "unchecked", "the schema is another one than this Rota's")]
    expected = doctor.expected_indexes(context.schema)
    existing = {each.name: each for each in await context.fetch(doctor.indexes(context.schema))}
    results = []
    for index in expected.values():
        if index.name not in existing:
            table = f"{context.schema}.{index.table}"
            message = (
                f"index {index.name} of {table} is missing: statements that need it read all rows"
            )
            results.append(CheckResult("indexes", "problem", message, 1, "index", index.statement))
    for each in existing.values():
        name = f"{context.schema}.{each.name}"
        if not each.is_valid:
            fix = (
                f"reindex index concurrently {name};"
                if each.name in expected
                else f"drop index concurrently {name};"
            )
            message = f"index {name} is invalid: it is written and never read"
            results.append(CheckResult("indexes", "problem", message, each.bytes, "bytes", fix))
        elif each.name not in expected and not each.scans:
            message = (
                f"index {name} is not Rota's own and was never used, and every write to "
                f"{context.schema}.{each.table} pays for it ({format_size(each.bytes)})"
            )
            fix = f"drop index concurrently {name};"
            results.append(CheckResult("indexes", "notice", message, each.bytes, "bytes", fix))
    message = f"all {len(expected)} indexes exist and are valid"
    return results or [CheckResult("indexes", "ok", message, len(expected), "indexes")]


MIN_SERVER_VERSION = 140000
"""The oldest PostgreSQL that Rota works with."""

NOTICE_TRANSACTION_SECONDS, PROBLEM_TRANSACTION_SECONDS = 60.0, 900.0
"""Seconds that a transaction may be open before it is a notice, and before it is a problem."""

NOTICE_SLOT_TRANSACTIONS, PROBLEM_SLOT_TRANSACTIONS = 1_000_000, 20_000_000
"""Transactions that a replication slot may be behind; a slot has no age in seconds."""

NOTICE_QUEUE_SHARE, PROBLEM_QUEUE_SHARE = 0.05, 0.5
"""Used share of the notification queue."""


def quote_literal(text: str) -> str:
    """Quote a literal for a statement that an operator pastes."""
    return "'" + text.replace("'", "''") + "'"


async def check_server(context: CheckContext) -> list[CheckResult]:
    found = await context.fetch_one(doctor.server())
    message = f"PostgreSQL {found.version}"
    if found.version_number < MIN_SERVER_VERSION:
        fix = "move to PostgreSQL 14 or later, with pg_upgrade"
        return [
            CheckResult(
                "server", "problem", f"{message} is too old", found.version_number // 10000, "", fix
            )
        ]
    if found.is_standby:
        fix = "let ROTA_DATABASE_URL name the primary, or all hosts with target_session_attrs=read-write"
        return [
            CheckResult(
                "server", "problem", f"{message} is a standby: nothing can be written", fix=fix
            )
        ]
    if found.is_read_only:
        fix = f"alter role {found.quoted_role} set default_transaction_read_only = off;"
        message = f"transactions of {found.role} are read only by default"
        return [CheckResult("server", "notice", message, fix=fix)]
    limited = []
    if not found.can_see_all_sessions:
        limited_message = (
            f"{found.role} cannot see sessions of other roles, nor their old transactions"
        )
        fix = f"grant pg_read_all_stats to {found.quoted_role};"
        limited = [CheckResult("server", "unchecked", limited_message, fix=fix)]
    return [CheckResult("server", "ok", message, found.version_number // 10000), *limited]


async def check_durability(context: CheckContext) -> list[CheckResult]:
    found = await context.fetch_one(doctor.server())
    settings: tuple[tuple[str, bool, Level, str], ...] = (
        ("fsync", found.fsync, "problem", "destroy all"),
        # Storage that writes whole pages by itself is common; then this is off for good reason.
        ("full_page_writes", found.full_page_writes, "notice", "leave pages half written"),
    )
    results = []
    for name, on, level, consequence in settings:
        if not on:
            message = (
                f"{name} is off: unless your provider's storage does this, a crash of the machine may "
                f"{consequence}"
            )
            fix = f"alter system set {name} = on; select pg_reload_conf();"
            results.append(CheckResult("durability", level, message, 0, "", fix))
    passed = CheckResult(
        "durability", "ok", "committed transactions survive a crash of the machine"
    )
    return results or [passed]


async def check_connections(context: CheckContext) -> list[CheckResult]:
    found = await context.fetch_one(doctor.server())
    share = found.connections / found.max_connections
    message = f"{found.connections:,} of {found.max_connections:,} connections are in use"
    level = level_for(share, 0.8, 0.95)
    fix = (
        None
        if level == "ok"
        else f"alter system set max_connections = {found.max_connections * 2}; and restart the "
        "server, or put "
        "PgBouncer before it; ROTA_CONNECTIONS limits the connections of each instance"
    )
    return [CheckResult("connections", level, message, round(100 * share, 1), "%", fix)]


async def check_pooler(context: CheckContext) -> list[CheckResult]:
    if not context.pooled:
        note = " (ROTA_POOLER=no)" if context.database.settings.pooler == "no" else ""
        return [CheckResult("pooler", "ok", f"connected directly{note}")]
    message = "connected through a pooler in transaction mode"
    if context.database.direct_dsn is not None:
        return [CheckResult("pooler", "ok", f"{message}; ROTA_DIRECT_URL bypasses it")]
    message += (
        ": workers poll for jobs instead of being notified, and detect dead workers by missed "
        "heartbeats alone"
    )
    fix = "ROTA_DIRECT_URL=postgresql://user:password@server:5432/name"
    return [
        CheckResult("pooler", "notice", message, context.database.settings.poll_interval, "s", fix)
    ]


async def check_clock(context: CheckContext) -> list[CheckResult]:
    before = context.now()
    found = await context.fetch_one(doctor.clock())
    after = context.now()
    # The server read its clock between the two, so the time of the round trip is not counted as skew.
    early, late = (before - found.now).total_seconds(), (after - found.now).total_seconds()
    skew = 0.0 if early <= 0 <= late else early if early > 0 else late
    results = []
    if abs(found.offset_seconds) > 1:
        name = f"{context.schema}.clock"
        fix = f"drop the function that tests left: select pg_get_functiondef('{name}'::regproc) shows it"
        message = (
            f"{name}() is {in_one_unit(abs(found.offset_seconds))} off the server's "
            "clock: the function was replaced"
        )
        results.append(
            CheckResult("clock", "problem", message, round(found.offset_seconds, 3), "s", fix)
        )
    message = (
        f"this machine's clock is {in_one_unit(abs(skew))} "
        f"{'before' if skew > 0 else 'behind'} the server's"
    )
    if abs(skew) < 0.001:
        message = "this machine's clock and the server's agree"
    level = level_for(abs(skew), 1, 30)
    ntp_fix = None if level == "ok" else "timedatectl set-ntp true"
    if level != "ok":
        message += "; Rota goes by the server's alone, but logs and times that code computes do not"
    return [*results, CheckResult("clock", level, message, round(skew, 3), "s", ntp_fix)]


async def check_snapshots(context: CheckContext) -> list[CheckResult]:
    found = await context.fetch(doctor.snapshot_holders())
    failed = [result for each in found if (result := _check_holder(each)).level != "ok"]
    if failed:
        return failed
    max_seconds = max((each.seconds or 0.0 for each in found), default=0.0)
    message = (
        f"no transaction is open for longer than {in_one_unit(max_seconds)}"
        if max_seconds
        else "no transaction is open"
    )
    return [CheckResult("snapshots", "ok", message, round(max_seconds, 1), "s")]


def _check_holder(holder: SnapshotHolderRow) -> CheckResult:
    """Check one holder of a snapshot: it keeps dead rows from being removed, and these slow down claims."""
    if holder.kind == "slot":
        age = holder.xid_age or 0
        level = level_for(age, NOTICE_SLOT_TRANSACTIONS, PROBLEM_SLOT_TRANSACTIONS)
        message = (
            f"replication slot {holder.name!r} ({holder.state}) is {age:,} transactions behind"
        )
        fix = f"select pg_drop_replication_slot({quote_literal(holder.name)}); if no consumer reads it"
        return CheckResult("snapshots", level, message, age, "transactions", fix)
    seconds = holder.seconds or 0.0
    level = level_for(seconds, NOTICE_TRANSACTION_SECONDS, PROBLEM_TRANSACTION_SECONDS)
    if holder.kind == "prepared":
        message = f"prepared transaction {holder.name!r} has been open for {in_one_unit(seconds)}"
        fix = f"rollback prepared {quote_literal(holder.name)}; or commit it"
    else:
        session = f"process {holder.pid} ({holder.name}, {holder.state})"
        message = f"{session} has had a transaction open for {in_one_unit(seconds)}"
        fix = (
            f"select pg_terminate_backend({holder.pid}); and, so that it does not come again, "
            "alter database … set idle_in_transaction_session_timeout = '60s';"
        )
    message += ": vacuum cannot remove dead rows, and claims have to skip them"
    return CheckResult("snapshots", level, message, round(seconds, 1), "s", fix)


async def check_notifications(context: CheckContext) -> list[CheckResult]:
    found = await context.fetch_one(doctor.notifications())
    percent = round(100 * found.queue_usage, 2)
    message = f"the queue of notifications is {percent:g} % full"
    level = level_for(found.queue_usage, NOTICE_QUEUE_SHARE, PROBLEM_QUEUE_SHARE)
    fix = None
    if level != "ok":
        message += "; when it is full, transactions that notify fail at commit"
        fix = "end the transaction of the session that listens and does not read"
        if found.pid is not None:
            message += (
                f"; process {found.pid} has had a transaction open for "
                f"{in_one_unit(found.seconds or 0)}"
            )
            fix = f"select pg_terminate_backend({found.pid});"
    return [CheckResult("notifications", level, message, percent, "%", fix)]


async def check_autovacuum(context: CheckContext) -> list[CheckResult]:
    found = await context.fetch_one(doctor.autovacuum())
    results = []
    for name, on in (("autovacuum", found.is_enabled), ("track_counts", found.tracks_counts)):
        if not on:
            fix = f"alter system set {name} = on; select pg_reload_conf();"
            message = f"{name} is off: dead rows are never removed, and claims become slow"
            results.append(CheckResult("autovacuum", "problem", message, 0, "", fix))
    for each in await context.fetch(doctor.tables(context.schema)):
        if not each.has_autovacuum:
            table = f"{context.schema}.{each.name}"
            fix = f"alter table {table} reset (autovacuum_enabled);"
            message = f"autovacuum is off for {table}"
            results.append(
                CheckResult("autovacuum", "problem", message, each.dead_rows, "dead rows", fix)
            )
    if found.naptime_seconds > 60:
        fix = "alter system set autovacuum_naptime = '15s'; select pg_reload_conf();"
        message = (
            f"autovacuum runs only every {in_one_unit(found.naptime_seconds)}: queues "
            "produce dead rows faster than that"
        )
        results.append(
            CheckResult("autovacuum", "notice", message, found.naptime_seconds, "s", fix)
        )
    message = f"autovacuum is on and runs every {in_one_unit(found.naptime_seconds)}"
    return results or [CheckResult("autovacuum", "ok", message, found.naptime_seconds, "s")]


async def check_wraparound(context: CheckContext) -> list[CheckResult]:
    found = await context.fetch_one(doctor.autovacuum())
    level = level_for(found.xid_age, 1_000_000_000, 1_500_000_000)
    message = f"the oldest row is {found.xid_age:,} transactions old; the limit is 2,147,483,648"
    fix = (
        None
        if level == "ok"
        else "vacuum freeze; and remove the cause that autovacuum and snapshots report"
    )
    return [CheckResult("wraparound", level, message, found.xid_age, "transactions", fix)]


MAX_UNSERVED_TASKS = 20
"""Tasks without a worker that are reported, those with the most jobs."""

OVERDUE_SECONDS = 30.0
"""Seconds after its wake-up time from which a sleeping job counts as overdue."""


async def check_workers(context: CheckContext) -> list[CheckResult]:
    dead_after = context.database.settings.dead_after
    counts = await context.fetch_one(doctor.worker_counts(dead_after))
    if counts.silent_workers:
        message = (
            f"{counts.silent_workers} of {counts.workers} workers have sent no heartbeat "
            f"for {in_one_unit(dead_after)}"
        )
        message += (
            ""
            if counts.silent_workers < counts.workers
            else ", and no live worker can declare them dead"
        )
        fix = "rota worker MODULE:APP"
        return [CheckResult("workers", "problem", message, counts.silent_workers, "workers", fix)]
    if not counts.workers:
        message = "no worker is running"
        return [CheckResult("workers", "notice", message, 0, "workers", "rota worker MODULE:APP")]
    versions = [each for each in counts.rota_versions if each]
    if len(versions) > 1:
        message = f"{counts.workers} workers run several versions of Rota: {', '.join(versions)}"
        fix = "finish the deploy: rota workers lists them"
        return [CheckResult("workers", "notice", message, len(versions), "versions", fix)]
    message = counted(counts.workers, "worker is running", "workers are running")
    return [CheckResult("workers", "ok", message, counts.workers, "workers")]


async def check_unclaimable(context: CheckContext) -> list[CheckResult]:
    results = []
    unserved = await context.fetch(queues.unserved_tasks())
    for each in sorted(unserved, key=lambda row: -row.jobs)[:MAX_UNSERVED_TASKS]:
        jobs = counted(each.jobs, "job", limit=queues.MAX_JOBS_PER_LANE)
        results.append(
            CheckResult(
                "unclaimable",
                "problem",
                f"{jobs} of task {each.task!r} in queue {each.queue!r}, such as {each.first_run}: "
                f"{each.reason}",
                each.jobs,
                "jobs",
                f"rota worker MODULE:APP -q {shlex.quote(each.queue)}",
            )
        )
    return results or [
        CheckResult(
            "unclaimable", "ok", "every queued job has a worker that can claim it", 0, "jobs"
        )
    ]


async def check_paused(context: CheckContext) -> list[CheckResult]:
    found = await context.fetch(queues.list_paused())
    if not found:
        return [CheckResult("paused", "ok", "no queue is paused", 0, "queues")]
    [now] = await context.fetch(runs.database_time())
    results = []
    for each in found:
        seconds = max((now - each.since).total_seconds(), 0.0)
        message = (
            f"queue {each.queue!r} has been paused for {in_one_unit(seconds)}: no worker "
            "claims its jobs"
        )
        fix = f"rota queues resume {shlex.quote(each.queue)}"
        results.append(CheckResult("paused", "notice", message, round(seconds, 1), "s", fix))
    return results


async def check_overdue(context: CheckContext) -> list[CheckResult]:
    found = await context.fetch_one(doctor.overdue_jobs(OVERDUE_SECONDS))
    if not found.jobs:
        return [CheckResult("overdue", "ok", "no sleeping job is late", 0, "s")]
    jobs = counted(found.jobs, "job", limit=1000)
    seconds = found.late_seconds or 0.0
    message = (
        f"{jobs} should have been woken up to {in_one_unit(seconds)} ago, and no worker did it"
    )
    return [
        CheckResult("overdue", "problem", message, round(seconds, 1), "s", "rota worker MODULE:APP")
    ]


async def check_orphans(context: CheckContext) -> list[CheckResult]:
    # Twice as long as a live worker needs.
    found = await context.fetch_one(
        doctor.orphaned_claims(2 * context.database.settings.dead_after)
    )
    if not found.jobs:
        return [CheckResult("orphans", "ok", "no lost worker holds a job", 0, "jobs")]
    jobs = counted(found.jobs, "job is", "jobs are")
    message = (
        f"{jobs} held by lost workers, such as {found.first_worker}, and no live worker "
        "takes them back"
    )
    return [
        CheckResult("orphans", "problem", message, found.jobs, "jobs", "rota worker MODULE:APP")
    ]


async def check_quarantine(context: CheckContext) -> list[CheckResult]:
    counts = await context.fetch_one(doctor.worker_counts(context.database.settings.dead_after))
    if not counts.quarantined:
        return [CheckResult("quarantine", "ok", "no job is in quarantine", 0, "jobs")]
    jobs = counted(counts.quarantined, "job is", "jobs are")
    message = f"{jobs} in quarantine: an operator has to release or cancel them"
    return [
        CheckResult("quarantine", "notice", message, counts.quarantined, "jobs", "rota quarantine")
    ]


Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class CheckContext:
    database: Database
    run_query: Callable[[Query[Any]], Awaitable[list[Any]]]
    pooled: bool
    """True if the connection passes through a pooler in transaction mode."""
    now: Callable[[], datetime]
    """Returns the time of this machine."""

    @property
    def schema(self) -> str:
        return self.database.schema

    async def fetch(self, query: Query[Row]) -> list[Row]:
        return await self.run_query(query)

    async def fetch_one(self, query: Query[Row]) -> Row:
        [row] = await self.fetch(query)
        return row
