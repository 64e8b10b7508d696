"""The server: what it is, what it keeps, who is in its way."""

from __future__ import annotations

from rota.engine.charts import CheckContext
from rota.model.checkup import CheckResult, Level, format_duration, level_for
from rota.store import doctor
from rota.store.doctor import SnapshotHolderRow

MIN_SERVER_VERSION = 140000
"""The oldest PostgreSQL that Rota works with."""

NOTICE_TRANSACTION_SECONDS, PROBLEM_TRANSACTION_SECONDS = 60.0, 900.0
"""Seconds that a transaction may be open before it is worth a word, and before it does harm."""

NOTICE_SLOT_TRANSACTIONS, PROBLEM_SLOT_TRANSACTIONS = 1_000_000, 20_000_000
"""Transactions that a slot may be behind, for which there is no time."""

NOTICE_QUEUE_SHARE, PROBLEM_QUEUE_SHARE = 0.05, 0.5
"""Parts of the queue of notifications."""


def quote_literal(text: str) -> str:
    """As it is written in a statement that somebody is going to paste."""
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
        message = f"transactions of {found.role} are read only unless they say otherwise"
        return [CheckResult("server", "notice", message, fix=fix)]
    limited = []
    if not found.can_see_all_sessions:
        limited_message = (
            f"{found.role} does not see what others do: old transactions of theirs go unseen"
        )
        fix = f"grant pg_read_all_stats to {found.quoted_role};"
        limited = [CheckResult("server", "unchecked", limited_message, fix=fix)]
    return [CheckResult("server", "ok", message, found.version_number // 10000), *limited]


async def check_durability(context: CheckContext) -> list[CheckResult]:
    found = await context.fetch_one(doctor.server())
    settings: tuple[tuple[str, bool, Level, str], ...] = (
        ("fsync", found.fsync, "problem", "destroy all"),
        # Storage that writes pages whole by itself is common, and then this is off for good reason.
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
    passed = CheckResult("durability", "ok", "what is committed outlives a crash of the machine")
    return results or [passed]


async def check_connections(context: CheckContext) -> list[CheckResult]:
    found = await context.fetch_one(doctor.server())
    share = found.connections / found.max_connections
    message = f"{found.connections:,} of {found.max_connections:,} connections are taken"
    level = level_for(share, 0.8, 0.95)
    fix = (
        None
        if level == "ok"
        else f"alter system set max_connections = {found.max_connections * 2}; and restart the "
        "server, or put "
        "PgBouncer before it; ROTA_CONNECTIONS says how many each instance may have"
    )
    return [CheckResult("connections", level, message, round(100 * share, 1), "%", fix)]


async def check_pooler(context: CheckContext) -> list[CheckResult]:
    if not context.pooled:
        note = (
            " (ROTA_POOLER=no says there is none)"
            if context.database.settings.pooler == "no"
            else ""
        )
        return [CheckResult("pooler", "ok", f"connected directly{note}")]
    message = "a pooler in transaction mode is in between"
    if context.database.direct_dsn is not None:
        return [CheckResult("pooler", "ok", f"{message}, and there is a way past it")]
    message += (
        ": workers look for work now and then instead of being told, and know a death by "
        "silence alone"
    )
    fix = "ROTA_DIRECT_URL=postgresql://user:password@server:5432/name"
    return [
        CheckResult("pooler", "notice", message, context.database.settings.poll_interval, "s", fix)
    ]


async def check_clock(context: CheckContext) -> list[CheckResult]:
    before = context.now()
    found = await context.fetch_one(doctor.clock())
    after = context.now()
    # It was read somewhere in between; what the way took is not held against it.
    early, late = (before - found.now).total_seconds(), (after - found.now).total_seconds()
    skew = 0.0 if early <= 0 <= late else early if early > 0 else late
    results = []
    if abs(found.offset_seconds) > 1:
        name = f"{context.schema}.clock"
        fix = f"drop what tests left: select pg_get_functiondef('{name}'::regproc) shows it"
        message = (
            f"{name}() is {format_duration(abs(found.offset_seconds))} off the server's "
            "own clock: somebody set it"
        )
        results.append(
            CheckResult("clock", "problem", message, round(found.offset_seconds, 3), "s", fix)
        )
    message = (
        f"this machine's clock is {format_duration(abs(skew))} "
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
        f"no transaction is open for longer than {format_duration(max_seconds)}"
        if max_seconds
        else "no transaction is open"
    )
    return [CheckResult("snapshots", "ok", message, round(max_seconds, 1), "s")]


def _check_holder(holder: SnapshotHolderRow) -> CheckResult:
    """What is gone stays in the way of every claim for as long as somebody could still see it."""
    if holder.kind == "slot":
        age = holder.xid_age or 0
        level = level_for(age, NOTICE_SLOT_TRANSACTIONS, PROBLEM_SLOT_TRANSACTIONS)
        message = (
            f"replication slot {holder.name!r} ({holder.state}) is {age:,} transactions behind"
        )
        fix = f"select pg_drop_replication_slot({quote_literal(holder.name)}); if nobody reads it any more"
        return CheckResult("snapshots", level, message, age, "transactions", fix)
    seconds = holder.seconds or 0.0
    level = level_for(seconds, NOTICE_TRANSACTION_SECONDS, PROBLEM_TRANSACTION_SECONDS)
    if holder.kind == "prepared":
        message = (
            f"prepared transaction {holder.name!r} has been open for {format_duration(seconds)}"
        )
        fix = f"rollback prepared {quote_literal(holder.name)}; or commit it"
    else:
        session = f"process {holder.pid} ({holder.name}, {holder.state})"
        message = f"{session} has had a transaction open for {format_duration(seconds)}"
        fix = (
            f"select pg_terminate_backend({holder.pid}); and, so that it does not come again, "
            "alter database … set idle_in_transaction_session_timeout = '60s';"
        )
    message += ": what is gone cannot be removed, and claims have to step over it"
    return CheckResult("snapshots", level, message, round(seconds, 1), "s", fix)


async def check_notifications(context: CheckContext) -> list[CheckResult]:
    found = await context.fetch_one(doctor.notifications())
    percent = round(100 * found.queue_usage, 2)
    message = f"the queue of notifications is {percent:g} % full"
    level = level_for(found.queue_usage, NOTICE_QUEUE_SHARE, PROBLEM_QUEUE_SHARE)
    fix = None
    if level != "ok":
        message += "; when it is full, whoever commits with one fails"
        fix = "end the transaction of the session that listens and does not read"
        if found.pid is not None:
            message += (
                f"; process {found.pid} has had a transaction open for "
                f"{format_duration(found.seconds or 0)}"
            )
            fix = f"select pg_terminate_backend({found.pid});"
    return [CheckResult("notifications", level, message, percent, "%", fix)]


async def check_autovacuum(context: CheckContext) -> list[CheckResult]:
    found = await context.fetch_one(doctor.autovacuum())
    results = []
    for name, on in (("autovacuum", found.is_enabled), ("track_counts", found.tracks_counts)):
        if not on:
            fix = f"alter system set {name} = on; select pg_reload_conf();"
            message = f"{name} is off: nothing that is gone is ever removed, and queues grow slow"
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
            f"autovacuum looks every {format_duration(found.naptime_seconds)} only: queues "
            "turn over faster than that"
        )
        results.append(
            CheckResult("autovacuum", "notice", message, found.naptime_seconds, "s", fix)
        )
    message = f"autovacuum is on and looks every {format_duration(found.naptime_seconds)}"
    return results or [CheckResult("autovacuum", "ok", message, found.naptime_seconds, "s")]


async def check_wraparound(context: CheckContext) -> list[CheckResult]:
    found = await context.fetch_one(doctor.autovacuum())
    level = level_for(found.xid_age, 1_000_000_000, 1_500_000_000)
    message = f"the oldest row is {found.xid_age:,} transactions old, of 2,147,483,648 that may be"
    fix = None if level == "ok" else "vacuum freeze; and see to what keeps autovacuum from it"
    return [CheckResult("wraparound", level, message, found.xid_age, "transactions", fix)]
