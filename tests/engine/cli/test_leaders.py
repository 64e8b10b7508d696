"""`rota leaders`: the leader of each name, its lease or session lock, and whether it is alive."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from rota import Rota as App
from rota.store import advisory_locks
from support.cli_fixtures import Rota
from support.terminal import run_on_terminal


@pytest.fixture
def sql(empty_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        yield connection


def insert_leader(sql: psycopg.Connection[Any], name: str, seat: int = 1, **values: object) -> None:
    """Insert a leader that was elected 200 seconds ago. `left`: remaining seconds of a lease."""
    given = {"term": 12, "free": False, "label": "", "left": None, "elections": [200.0], **values}
    sql.execute(
        "insert into rota.leaders (name, term, instance, host, pid, label, since, expires,"
        " session_lock, elections)"
        " values (%(name)s, %(term)s, case when not %(free)s then gen_random_uuid() end, 'web-1', 4242,"
        " %(label)s, now() - interval '200 s', now() + make_interval(secs => %(left)s), %(seat)s,"
        " array(select now() - make_interval(secs => ago) from unnest(%(elections)s::float8[]) as ago))",
        {**given, "name": name, "seat": seat},
    )


def table(printed: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in printed.splitlines() if line.strip()]


def test_leaders_command_no_leader_prints_hint(empty_rota: Rota) -> None:
    assert empty_rota("leaders").out.startswith(
        'no leaders yet; `app.leader("name")` and services stand for'
    )
    assert empty_rota("leaders", "--json").json()["leaders"] == []


def test_leaders_command_ended_session_or_lease_is_not_alive(
    empty_rota: Rota, sql: psycopg.Connection[Any], empty_dsn: str
) -> None:
    insert_leader(sql, "by lease", left=30)
    insert_leader(sql, "gone", seat=7)
    insert_leader(sql, "here", seat=-77)
    insert_leader(sql, "late", left=-70)
    insert_leader(sql, "nobody", free=True, seat=-77)
    with psycopg.connect(empty_dsn, autocommit=True) as holder:
        # The right key in another namespace, and its two halves in the other form, are not a session lock.
        holder.execute(
            "select pg_advisory_lock(%(space)s, -77), pg_advisory_lock(%(other)s, 7),"
            " pg_advisory_lock((%(space)s::bigint << 32) | 7)",
            {"space": advisory_locks.LEADER, "other": advisory_locks.WORKER},
        )
        listed = {each["name"]: each for each in empty_rota("leaders", "--json").json()["leaders"]}
        heading, *lines = table(empty_rota("leaders").out)

    assert heading == ["name", "term", "leader", "age", "kind", "state", "elections"]
    assert lines == [
        ["by lease", "12", "web-1:4242", "3 min", "lease", "leading", "1"],
        ["gone", "12", "web-1:4242", "session", "session ended", "1"],
        ["here", "12", "web-1:4242", "3 min", "session", "leading", "1"],
        ["late", "12", "web-1:4242", "lease", "expired 1 min ago", "1"],
        ["nobody", "12", "none", "resigned", "1"],
    ]
    assert {
        name: (each["alive"], each["expires"] is not None) for name, each in listed.items()
    } == {
        "by lease": (True, True),
        "gone": (False, False),
        "here": (True, False),
        "late": (False, True),
        "nobody": (False, False),
    }


def test_leaders_command_counts_elections_of_the_last_hour(
    empty_rota: Rota, sql: psycopg.Connection[Any]
) -> None:
    insert_leader(sql, "calm", elections=[3700.0, 10.0], left=30)
    insert_leader(sql, "first", term=1, elections=[10.0], left=30)
    insert_leader(sql, "wild", elections=[10.0 + each for each in range(10)], left=30)
    insert_leader(sql, "young", term=3, elections=[30.0, 20.0, 10.0], left=30)

    assert [each[-1] for each in table(empty_rota("leaders").out)[1:]] == ["1", "1", "10+", "3"]


async def test_leaders_command_lists_label_and_session_lock(
    empty_rota: Rota, empty_dsn: str
) -> None:
    async with App(empty_dsn) as app, app.leader("mayor", label="town hall").term():
        [leader] = (await asyncio.to_thread(empty_rota, "leaders", "--json")).json()["leaders"]
        printed = (await asyncio.to_thread(empty_rota, "leaders")).out
        done = await asyncio.to_thread(empty_rota, "locks", "advisory", "--json")
        [seat] = done.json()["advisory_locks"]

    assert (leader["name"], leader["term"], leader["label"]) == ("mayor", "1", "town hall")
    assert (leader["expires"], leader["alive"]) == (None, True)
    assert table(printed)[1][:3] == ["mayor", "1", "town hall"]
    assert (seat["namespace"], seat["owner"]) == ("leader", "mayor")


@pytest.mark.parametrize("columns", [80, 120])
def test_leaders_command_narrow_terminal_cuts_no_name(
    sql: psycopg.Connection[Any], empty_dsn: str, columns: int
) -> None:
    insert_leader(sql, "service the-monitor-of-all-the-filings", label="the night shift", left=30)

    printed = run_on_terminal(empty_dsn, columns, "leaders")

    assert all(len(line) <= columns for line in printed.splitlines())
    assert "…" not in printed
    assert "elections: within the last hour" in printed
