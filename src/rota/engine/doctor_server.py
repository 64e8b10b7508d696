"""The server: what it is, what it keeps, who is in its way."""

from __future__ import annotations

from rota.engine.charts import Chart
from rota.model.checkup import Checked, Level, duration, grade
from rota.store import doctor
from rota.store.doctor import Holder

OLDEST = 140000
"""The oldest PostgreSQL that Rota works with."""

LONG, TOO_LONG = 60.0, 900.0
"""Seconds that a transaction may be open before it is worth a word, and before it does harm."""

MANY, TOO_MANY = 1_000_000, 20_000_000
"""Transactions that a slot may be behind, for which there is no time."""

FULL, TOO_FULL = 0.05, 0.5
"""Parts of the queue of notifications."""


def literal(text: str) -> str:
    """As it is written in a statement that somebody is going to paste."""
    return "'" + text.replace("'", "''") + "'"


async def server(chart: Chart) -> list[Checked]:
    found = await chart.one(doctor.server())
    words = f"PostgreSQL {found.version}"
    if found.number < OLDEST:
        fix = "move to PostgreSQL 14 or later, with pg_upgrade"
        return [Checked("server", "problem", f"{words} is too old", found.number // 10000, "", fix)]
    if found.standby:
        fix = "let ROTA_DATABASE_URL name the primary, or all hosts with target_session_attrs=read-write"
        return [
            Checked("server", "problem", f"{words} is a standby: nothing can be written", fix=fix)
        ]
    if found.read_only:
        fix = f"alter role {found.quoted} set default_transaction_read_only = off;"
        words = f"transactions of {found.me} are read only unless they say otherwise"
        return [Checked("server", "notice", words, fix=fix)]
    unseen = []
    if not found.sees_all:
        words_unseen = (
            f"{found.me} does not see what others do: old transactions of theirs go unseen"
        )
        fix = f"grant pg_read_all_stats to {found.quoted};"
        unseen = [Checked("server", "unseen", words_unseen, fix=fix)]
    return [Checked("server", "ok", words, found.number // 10000), *unseen]


async def durability(chart: Chart) -> list[Checked]:
    found = await chart.one(doctor.server())
    settings: tuple[tuple[str, bool, Level, str], ...] = (
        ("fsync", found.fsync, "problem", "destroy all"),
        # Storage that writes pages whole by itself is common, and then this is off for good reason.
        ("full_page_writes", found.whole_pages, "notice", "leave pages half written"),
    )
    answers = []
    for name, on, level, harm in settings:
        if not on:
            words = (
                f"{name} is off: unless your provider's storage does this, a crash of the machine may "
                f"{harm}"
            )
            fix = f"alter system set {name} = on; select pg_reload_conf();"
            answers.append(Checked("durability", level, words, 0, "", fix))
    well = Checked("durability", "ok", "what is committed outlives a crash of the machine")
    return answers or [well]


async def connections(chart: Chart) -> list[Checked]:
    found = await chart.one(doctor.server())
    share = found.connections / found.most
    words = f"{found.connections:,} of {found.most:,} connections are taken"
    level = grade(share, 0.8, 0.95)
    fix = (
        None
        if level == "ok"
        else f"alter system set max_connections = {found.most * 2}; and restart the server, or put "
        "PgBouncer before it; ROTA_CONNECTIONS says how many each instance may have"
    )
    return [Checked("connections", level, words, round(100 * share, 1), "%", fix)]


async def pooler(chart: Chart) -> list[Checked]:
    if not chart.pooled:
        said = (
            " (ROTA_POOLER=no says there is none)" if chart.database.settings.pooler == "no" else ""
        )
        return [Checked("pooler", "ok", f"connected directly{said}")]
    words = "a pooler in transaction mode is in between"
    if chart.database.direct is not None:
        return [Checked("pooler", "ok", f"{words}, and there is a way past it")]
    words += ": workers look for work now and then instead of being told, and know a death by silence alone"
    fix = "ROTA_DIRECT_URL=postgresql://user:password@server:5432/name"
    return [Checked("pooler", "notice", words, chart.database.settings.poll, "s", fix)]


async def clock(chart: Chart) -> list[Checked]:
    before = chart.now()
    found = await chart.one(doctor.clock())
    after = chart.now()
    # It was read somewhere in between; what the way took is not held against it.
    early, late = (before - found.now).total_seconds(), (after - found.now).total_seconds()
    off = 0.0 if early <= 0 <= late else early if early > 0 else late
    answers = []
    if abs(found.off) > 1:
        name = f"{chart.schema}.clock"
        fix = f"drop what tests left: select pg_get_functiondef('{name}'::regproc) shows it"
        words = (
            f"{name}() is {duration(abs(found.off))} off the server's own clock: somebody set it"
        )
        answers.append(Checked("clock", "problem", words, round(found.off, 3), "s", fix))
    words = f"this machine's clock is {duration(abs(off))} {'before' if off > 0 else 'behind'} the server's"
    if abs(off) < 0.001:
        words = "this machine's clock and the server's agree"
    level = grade(abs(off), 1, 30)
    mends = None if level == "ok" else "timedatectl set-ntp true"
    if level != "ok":
        words += "; Rota goes by the server's alone, but logs and times that code computes do not"
    return [*answers, Checked("clock", level, words, round(off, 3), "s", mends)]


async def snapshots(chart: Chart) -> list[Checked]:
    found = await chart.ask(doctor.snapshots())
    bad = [checked for each in found if (checked := _holder(each)).level != "ok"]
    if bad:
        return bad
    longest = max((each.seconds or 0.0 for each in found), default=0.0)
    words = (
        f"no transaction is open for longer than {duration(longest)}"
        if longest
        else "no transaction is open"
    )
    return [Checked("snapshots", "ok", words, round(longest, 1), "s")]


def _holder(holder: Holder) -> Checked:
    """What is gone stays in the way of every claim for as long as somebody could still see it."""
    if holder.kind == "slot":
        age = holder.age or 0
        level = grade(age, MANY, TOO_MANY)
        words = f"replication slot {holder.whose!r} ({holder.state}) is {age:,} transactions behind"
        fix = (
            f"select pg_drop_replication_slot({literal(holder.whose)}); if nobody reads it any more"
        )
        return Checked("snapshots", level, words, age, "transactions", fix)
    seconds = holder.seconds or 0.0
    level = grade(seconds, LONG, TOO_LONG)
    if holder.kind == "prepared":
        words = f"prepared transaction {holder.whose!r} has been open for {duration(seconds)}"
        fix = f"rollback prepared {literal(holder.whose)}; or commit it"
    else:
        who = f"process {holder.pid} ({holder.whose}, {holder.state})"
        words = f"{who} has had a transaction open for {duration(seconds)}"
        fix = (
            f"select pg_terminate_backend({holder.pid}); and, so that it does not come again, "
            "alter database … set idle_in_transaction_session_timeout = '60s';"
        )
    words += ": what is gone cannot be removed, and claims have to step over it"
    return Checked("snapshots", level, words, round(seconds, 1), "s", fix)


async def notifications(chart: Chart) -> list[Checked]:
    found = await chart.one(doctor.notifications())
    percent = round(100 * found.full, 2)
    words = f"the queue of notifications is {percent:g} % full"
    level = grade(found.full, FULL, TOO_FULL)
    fix = None
    if level != "ok":
        words += "; when it is full, whoever commits with one fails"
        fix = "end the transaction of the session that listens and does not read"
        if found.pid is not None:
            words += f"; process {found.pid} has had a transaction open for {duration(found.seconds or 0)}"
            fix = f"select pg_terminate_backend({found.pid});"
    return [Checked("notifications", level, words, percent, "%", fix)]


async def autovacuum(chart: Chart) -> list[Checked]:
    found = await chart.one(doctor.autovacuum())
    answers = []
    for name, on in (("autovacuum", found.on), ("track_counts", found.counted)):
        if not on:
            fix = f"alter system set {name} = on; select pg_reload_conf();"
            words = f"{name} is off: nothing that is gone is ever removed, and queues grow slow"
            answers.append(Checked("autovacuum", "problem", words, 0, "", fix))
    for each in await chart.ask(doctor.tables(chart.schema)):
        if not each.vacuumed:
            table = f"{chart.schema}.{each.name}"
            fix = f"alter table {table} reset (autovacuum_enabled);"
            words = f"autovacuum is off for {table}"
            answers.append(Checked("autovacuum", "problem", words, each.dead, "dead rows", fix))
    if found.every > 60:
        fix = "alter system set autovacuum_naptime = '15s'; select pg_reload_conf();"
        words = f"autovacuum looks every {duration(found.every)} only: queues turn over faster than that"
        answers.append(Checked("autovacuum", "notice", words, found.every, "s", fix))
    words = f"autovacuum is on and looks every {duration(found.every)}"
    return answers or [Checked("autovacuum", "ok", words, found.every, "s")]


async def wraparound(chart: Chart) -> list[Checked]:
    found = await chart.one(doctor.autovacuum())
    level = grade(found.age, 1_000_000_000, 1_500_000_000)
    words = f"the oldest row is {found.age:,} transactions old, of 2,147,483,648 that may be"
    fix = None if level == "ok" else "vacuum freeze; and see to what keeps autovacuum from it"
    return [Checked("wraparound", level, words, found.age, "transactions", fix)]
