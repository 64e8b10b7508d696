"""`rota locks`: holders, release by force, and owners of advisory locks."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from rota import Rota as App
from rota.cli.exit_codes import FAILED, NOT_FOUND, USAGE_ERROR
from rota.errors import Busy, LockLost
from rota.store import advisory_locks
from support.cli_fixtures import Rota
from support.terminal import eventually, run_on_terminal

HOLD = {
    "slot": 0,
    "token": 17,
    "free": False,
    "host": "web-1",
    "label": "",
    "age": 200,
    "left": 150,
    "renewals": 20,
    "longest": None,
    "wanted": None,
}


@pytest.fixture
def sql(empty_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        yield connection


def insert_lock(sql: psycopg.Connection[Any], name: str, **values: object) -> None:
    """Insert a lock of another instance, acquired `age` seconds ago, with `left` seconds remaining."""
    sql.execute(
        "insert into rota.locks (name, slot, token, instance, host, pid, label, acquired, expires,"
        " renewals, max_held, awaited_since) values (%(name)s, %(slot)s, %(token)s,"
        " case when not %(free)s then gen_random_uuid() end, %(host)s, 4242, %(label)s,"
        " now() - make_interval(secs => %(age)s), now() + make_interval(secs => %(left)s), %(renewals)s,"
        " %(longest)s, now() - make_interval(secs => %(wanted)s))",
        {**HOLD, **values, "name": name},
    )


def table(printed: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in printed.splitlines() if line.strip()]


# Listing


def test_locks_command_no_held_lock_prints_hint(
    empty_rota: Rota, sql: psycopg.Connection[Any]
) -> None:
    assert empty_rota("locks").out == (
        'no lock is held; acquire one with `async with app.lock("name")`, or list free locks with --all\n'
    )
    assert empty_rota("locks", "--all").out.startswith("no locks yet; acquire one with ")
    assert empty_rota("locks", "--json").json()["locks"] == []

    insert_lock(sql, "invoices", free=True)

    assert empty_rota("locks").out.startswith("no lock is held")
    assert table(empty_rota("locks", "--all").out)[1] == ["invoices", "none", "17"]


async def test_locks_command_lists_the_holder(empty_rota: Rota, empty_dsn: str) -> None:
    async with App(empty_dsn) as app, app.lock("invoices", label="nightly") as lock:
        [listed] = (await asyncio.to_thread(empty_rota, "locks", "--json")).json()["locks"]

    assert (listed["name"], listed["label"], listed["held"]) == ("invoices", "nightly", True)
    assert (listed["token"], listed["pid"]) == (str(lock.token), os.getpid())


def test_locks_command_prints_all_columns(empty_rota: Rota, sql: psycopg.Connection[Any]) -> None:
    insert_lock(sql, "invoices", label="nightly", wanted=70)
    insert_lock(sql, "mail", slot=1, token=18, age=70, renewals=0)
    insert_lock(sql, "mail", slot=2, token=19, free=True)
    insert_lock(sql, "rollup", token=20, left=-1200)
    insert_lock(sql, "older", token=21, left=-3700)

    heading, *lines = table(empty_rota("locks").out)

    assert heading == [
        "lock",
        "permit",
        "holder",
        "host",
        "process",
        "held",
        "expires",
        "token",
        "renewals",
        "awaited",
    ]
    assert lines == [
        ["invoices", "nightly", "web-1", "4242", "3 min", "in 2 min", "17", "20", "1 min"],
        ["mail", "1", "web-1:4242", "web-1", "4242", "1 min", "in 2 min", "18", "0"],
        ["rollup", "web-1:4242", "web-1", "4242", "20 min ago", "20"],
    ]
    whole = empty_rota("locks", "--all", "--json").json()["locks"]
    assert [(each["name"], each["permit"], each["held"]) for each in whole] == [
        ("invoices", 0, True),
        ("mail", 1, True),
        ("mail", 2, False),
        ("older", 0, False),
        ("rollup", 0, False),
    ]


@pytest.mark.parametrize("columns", [80, 120])
def test_locks_command_narrow_terminal_cuts_no_name(
    sql: psycopg.Connection[Any], empty_dsn: str, columns: int
) -> None:
    host = "ip-10-0-1-17.eu-central-1.compute.internal"
    insert_lock(sql, "reports/2026/weekly-rollup-of-everything", label="the night shift", host=host)
    insert_lock(sql, "mail", slot=3, token=2**40)

    printed = run_on_terminal(empty_dsn, columns, "locks")

    assert all(len(line) <= columns for line in printed.splitlines())
    assert "…" not in printed
    letters = re.sub(r"\s", "", "".join(line[:20] for line in printed.splitlines()))
    assert "reports/2026/weekly" in letters
    assert str(2**40) in printed
    assert ("renewals" in printed.splitlines()[0]) is (columns == 120)
    assert ("renewals: in a wider terminal" in printed) is (columns == 80)


# Release by force


def test_locks_release_without_yes_prints_plan_and_releases_nothing(
    empty_rota: Rota, sql: psycopg.Connection[Any]
) -> None:
    insert_lock(sql, "invoices", label="nightly")

    done = empty_rota("locks", "release", "invoices")

    assert done.code == FAILED
    assert done.complaint == "nothing was released; repeat the command with --yes to release it"
    assert done.out.startswith(
        "lock 'invoices' is held by nightly (web-1, process 4242) under token 17 for 3 min; it expires in"
    )
    assert "the next client acquires it under a larger token" in done.out
    assert sql.execute("select token from rota.locks where instance is not null").fetchall() == [
        (17,)
    ]
    assert empty_rota("audit").out.startswith("no operator actions yet")


async def test_locks_release_with_yes_fences_holder_and_writes_audit(
    empty_rota: Rota, empty_dsn: str, sql: psycopg.Connection[Any]
) -> None:
    async with App(empty_dsn) as app:
        lock = await app.lock("invoices", ttl=30, label="nightly").acquire()
        done = await asyncio.to_thread(empty_rota, "locks", "release", "invoices", "--yes")
        with pytest.raises(LockLost), sql.transaction():
            await lock.assert_held(sql)
        with pytest.raises(LockLost):
            await lock.release()
        async with app.lock("invoices", wait=0) as after:
            assert after.token > lock.token + 1, "the forced release issued a token"
    [entry] = (await asyncio.to_thread(empty_rota, "audit", "--json")).json()["entries"]
    printed = (await asyncio.to_thread(empty_rota, "audit")).out

    assert (done.code, done.err) == (0, "")
    assert re.match(
        r"released lock 'invoices': it was held by nightly \(.*, process \d+\)", done.out
    )
    assert f"under token {lock.token}. Writes that assert this token are refused" in done.out
    assert (entry["action"], entry["subject"]) == ("release lock", "invoices")
    assert entry["detail"]["token"] == lock.token
    assert re.fullmatch(r"\w[\w.-]*@\S+", entry["operator"])
    assert table(printed)[1][1:4] == [entry["operator"], "release lock", "invoices"]
    assert table(printed)[1][4].endswith(f"token {lock.token}")


def test_locks_release_operator_ignores_user_variables(
    empty_rota: Rota, sql: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "nobody-of-this-name")
    insert_lock(sql, "invoices")

    empty_rota("locks", "release", "invoices", "--yes")

    assert "nobody-of-this-name" not in empty_rota("audit").out


def test_locks_release_semaphore_needs_permit_option(
    empty_rota: Rota, sql: psycopg.Connection[Any]
) -> None:
    for slot in (1, 2, 3):
        insert_lock(sql, "mail", slot=slot, token=slot, free=slot == 2)

    asked = empty_rota("locks", "release", "mail", "--yes")
    done = empty_rota("locks", "release", "mail", "--permit", "3", "--yes")

    assert (asked.code, asked.complaint) == (
        USAGE_ERROR,
        "'mail' is a semaphore: choose a permit with --permit N; 1 and 3 are held",
    )
    assert done.out.startswith("released permit 3 of 'mail': it was held by ")
    held = sql.execute("select slot from rota.locks where instance is not null").fetchall()
    assert held == [(1,)]
    assert empty_rota("audit", "--json").json()["entries"][0]["subject"] == "mail permit 3"


def test_locks_release_unheld_lock_is_not_found(
    empty_rota: Rota, sql: psycopg.Connection[Any]
) -> None:
    insert_lock(sql, "invoices", free=True)
    insert_lock(sql, "mail", slot=1, free=True)
    for words, complaint in {
        ("invoices",): "lock 'invoices' is not held",
        ("nope",): "lock 'nope' does not exist; list all locks with `rota locks --all`",
        ("mail",): "'mail' is a semaphore: choose a permit with --permit N; none is held",
        ("mail", "--permit", "7"): "'mail' has no permit 7",
    }.items():
        done = empty_rota("locks", "release", *words, "--yes")

        assert (done.code, done.complaint) == (NOT_FOUND, complaint)


def test_locks_release_asserted_lock_names_the_transaction(
    empty_rota: Rota, sql: psycopg.Connection[Any], empty_dsn: str
) -> None:
    insert_lock(sql, "invoices")
    with psycopg.connect(empty_dsn, application_name="shop") as relying:
        relying.execute("select rota.assert_lock('invoices', 17)")
        pid = relying.info.backend_pid

        done = empty_rota("locks", "release", "invoices", "--yes")

        assert done.code == FAILED
        assert re.match(
            rf"lock 'invoices' was not released: an open transaction asserts it: server process {pid} "
            rf"\(shop, user \w+.*\) has been in the transaction for .* s and is idle in transaction\. "
            rf"End the transaction in its program, or roll it back with "
            rf"`select pg_terminate_backend\({pid}\)`",
            done.complaint,
        )
        assert sql.execute("select count(*) from rota.audit").fetchall() == [(0,)]
        relying.rollback()

    assert empty_rota("locks", "release", "invoices", "--yes").code == 0


async def test_lock_expired_but_asserted_raises_busy_with_remedy(
    sql: psycopg.Connection[Any], empty_dsn: str
) -> None:
    insert_lock(sql, "invoices", left=-5)
    with psycopg.connect(empty_dsn) as relying:
        relying.execute("select from rota.locks for key share")
        async with App(empty_dsn) as app:
            with pytest.raises(
                Busy, match=r"asserted by an open transaction; `rota locks release`"
            ):
                await app.lock("invoices", wait=0.1).acquire()


def test_locks_release_expired_lock_prints_expiry(
    empty_rota: Rota, sql: psycopg.Connection[Any]
) -> None:
    insert_lock(sql, "invoices", left=-1200)

    done = empty_rota("locks", "release", "invoices")

    assert done.out.startswith("lock 'invoices' expired 20 min ago, under token 17: web-1, process")


def test_locks_release_dsn_option_works_at_every_position(
    rota: Rota, sql: psycopg.Connection[Any], empty_dsn: str
) -> None:
    insert_lock(sql, "invoices")

    for words in (
        ("locks", "--dsn", empty_dsn, "release", "invoices"),
        ("locks", "release", "--dsn", empty_dsn, "invoices"),
        ("--dsn", empty_dsn, "locks", "release", "invoices"),
    ):
        assert rota(*words).out.startswith("lock 'invoices' is held by web-1"), words


# Advisory locks


def test_locks_advisory_lists_the_owner_of_each_lock(
    empty_rota: Rota, sql: psycopg.Connection[Any], empty_dsn: str
) -> None:
    assert empty_rota("locks", "advisory").out.startswith(
        "no advisory lock is held in this database; "
    )
    sql.execute(
        "insert into rota.leaders (name, term, instance, session_lock)"
        " values ('mayor', 1, gen_random_uuid(), -77)"
    )
    one = advisory_locks.LEADER << 32 | 7  # the same number as one key, which Rota does not use
    with psycopg.connect(empty_dsn, autocommit=True, application_name="shop") as holder:
        holder.execute(
            "select pg_advisory_lock(%s, -77), pg_advisory_lock(%s, 5), pg_advisory_lock_shared(-4, 5),"
            " pg_advisory_lock(-6), pg_advisory_lock(%s)",
            (advisory_locks.LEADER, advisory_locks.MIGRATION, one),
        )
        pid = str(holder.info.backend_pid)
        listed = empty_rota("locks", "advisory", "--json").json()["advisory_locks"]
        _, *lines = table(empty_rota("locks", "advisory").out)

    assert sorted(each[:3] for each in lines) == [
        ["leader mayor", "-77", pid],
        ["migration", "5", pid],
        ["other", "-4, 5", pid],
        ["other", "-6", pid],
        ["other", str(one), pid],
    ]
    [shared] = [each for each in lines if each[1] == "-4, 5"]
    assert shared[3:5] == ["shared", "shop"]
    assert {each["application"] for each in listed} == {"shop"}
    assert {each["state"] for each in listed} == {"idle"}
    assert {(each["namespace"], each["key"]) for each in listed} == {
        ("leader", "-77"),
        ("migration", "5"),
        (None, "5"),
        (None, "-6"),
        (None, str(one)),
    }


def test_locks_advisory_lists_waiters_of_this_database_only(
    empty_rota: Rota, sql: psycopg.Connection[Any], empty_dsn: str, shared_dsn: str
) -> None:
    waits = "select pg_advisory_lock(9, 9)"
    with (
        psycopg.connect(shared_dsn, autocommit=True) as elsewhere,
        psycopg.connect(empty_dsn, autocommit=True) as holder,
        psycopg.connect(empty_dsn, autocommit=True) as waiter,
        ThreadPoolExecutor() as threads,
    ):
        elsewhere.execute("select pg_advisory_lock(8, 8)")
        holder.execute("select pg_advisory_lock(9, 9)")
        pids = [str(each.info.backend_pid) for each in (holder, waiter)]
        waiting = threads.submit(waiter.execute, waits)
        eventually(lambda: sql.execute("select from pg_locks where not granted").rowcount)
        _, *lines = table(empty_rota("locks", "advisory").out)
        holder.execute("select pg_advisory_unlock(9, 9)")
        waiting.result()

    assert [each[1:4] for each in lines] == [
        ["9, 9", pids[0], "postgres"],
        ["9, 9", pids[1], "waiting"],
    ]
