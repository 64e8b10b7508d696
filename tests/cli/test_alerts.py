"""`rota alerts`: open and past alerts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from rota import Rota as App
from rota.cli.exit_codes import FAILED, NOT_FOUND
from rota.model.events import AlertRaised
from rota.testing import Harness

from .conftest import Rota
from .terminal import on_a_terminal

MESSAGE = "lock 'invoices' (token 17) is held for longer than the 60 s that were declared"


@pytest.fixture
def sql(empty_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def alert(sql: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """Lock that is held too long, with an open alert for it."""
    sql.execute(
        "insert into rota.locks (name, slot, token, instance, host, pid, acquired, expires)"
        " values ('invoices', 0, 17, gen_random_uuid(), 'web-1', 4242, now(), now() + interval '1 h')"
    )
    sql.execute(
        "insert into rota.alerts (kind, subject, message, token, host, pid, raised)"
        " values ('lock held too long', 'invoices', %s, 17, 'web-1', 4242, now() - interval '70 s')",
        (MESSAGE,),
    )
    return sql


def table(printed: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in printed.splitlines() if line.strip()]


def test_where_there_is_none_it_says_so(alone: Rota) -> None:
    assert alone("alerts").out == "no alert is open; list closed alerts with --all\n"
    assert alone("alerts", "--all").out == "no alerts yet\n"
    assert alone("alerts", "--json").json() == []
    assert alone("alerts", "--check").code == 0


def test_an_open_alert_is_listed_and_can_be_checked_for(
    alone: Rota, alert: psycopg.Connection[Any]
) -> None:
    listed, checked = alone("alerts"), alone("alerts", "--check")

    assert table(listed.out) == [
        ["alert", "age", "reported by", "message"],
        ["lock held too long", "1 min", "web-1:4242", MESSAGE],
    ]
    assert (listed.code, checked.code) == (0, FAILED)
    assert (checked.out, checked.err) == (listed.out, "")
    alert.execute(
        "insert into rota.alerts (kind, subject, message, host, pid, cleared)"
        " values ('renewals fail', 'mail', 'it was so', 'web-1', 4242, now())"
    )
    assert alone("alerts", "--all", "--limit", "1", "--check").code == FAILED, (
        "what is open is first"
    )
    [document] = alone("alerts", "--json").json()
    assert (document["kind"], document["subject"]) == ("lock held too long", "invoices")
    assert document["cleared"] is None


def test_to_list_them_is_to_close_what_is_no_longer_so(
    alone: Rota, alert: psycopg.Connection[Any]
) -> None:
    alert.execute("update rota.locks set expires = now() - interval '1 s'")

    assert alone("alerts", "--check").code == 0
    assert alone("alerts").out.startswith("no alert is open")
    assert table(alone("alerts", "--all").out) == [
        ["alert", "raised", "duration", "reported by", "message"],
        ["lock held too long", "1 min ago", "1 min 10 s", "web-1:4242", MESSAGE],
    ]


async def test_what_a_program_tells_is_what_is_listed(alone: Rota, empty_dsn: str) -> None:
    async with Harness(App(empty_dsn)) as harness:
        async with harness.app.lock("invoices", max_held=0.1):
            raised = await harness.wait_for_event(AlertRaised)
            for _ in range(100):
                listed = (await asyncio.to_thread(alone, "alerts", "--json")).json()
                if listed:
                    break
                await asyncio.sleep(0.01)
    again = (await asyncio.to_thread(alone, "alerts", "--check")).code

    assert [each["message"] for each in listed] == [raised.message]
    assert again == 0


@pytest.mark.parametrize("columns", [80, 120])
def test_a_message_is_not_cut_on_a_terminal(
    alert: psycopg.Connection[Any], empty_dsn: str, columns: int
) -> None:
    printed = on_a_terminal(empty_dsn, columns, "alerts")

    assert all(len(line) <= columns for line in printed.splitlines())
    assert "declared" in printed
    assert "…" not in printed


# Acknowledging


def test_one_that_somebody_sees_to_is_passed_by_until_its_time_is_over(
    alone: Rota, alert: psycopg.Connection[Any]
) -> None:
    done = alone("alerts", "ack", "lock held too long", "invoices", "--for", "1h")
    assert (done.code, done.out) == (0, "acknowledged for 1 h: lock held too long: invoices\n")

    assert alone("alerts", "--check").code == 0
    [line] = alone("alerts", "--json").json()
    assert line["cleared"] is None
    assert "@" in line["acknowledged_by"]
    assert "handled by" in alone("alerts").out

    alert.execute("update rota.alerts set acknowledged_until = now() - interval '1 s'")
    assert alone("alerts", "--check").code == FAILED


def test_one_is_closed_by_hand_and_who_did_is_written_down(
    alone: Rota, alert: psycopg.Connection[Any]
) -> None:
    done = alone("alerts", "close", "lock held too long")
    assert (done.code, done.out) == (0, "closed: lock held too long: invoices\n")
    assert alone("alerts", "--check").code == 0
    [line] = alone("alerts", "--all", "--json").json()
    assert "@" in line["closed_by"]
    [entry] = alone("audit", "--json").json()
    assert (entry["action"], entry["subject"]) == ("close alert", "lock held too long: invoices")
    asked = (
        "--operator",
        entry["operator"],
        "--action",
        "close alert",
        "--subject",
        entry["subject"],
    )
    assert alone("audit", *asked, "--json").json() == [entry]
    assert alone("audit", "--operator", "nobody").out.startswith("no operator action matches")

    again = alone("alerts", "close", "lock held too long", "invoices")
    assert again.code == NOT_FOUND
    assert "no alert 'lock held too long' about 'invoices' is open" in again.err


def test_a_worker_that_was_seen_to_is_not_told_again_but_the_next_is(
    alone: Rota, empty_dsn: str
) -> None:
    died = (
        "insert into rota.workers (host, pid, version, queues, tasks, capacity, state, last_beat, ended)"
        " values ('web-1', 1, '', '{default}', '{}', 1, 'dead', now(), now())"
    )
    look = "update rota.alert_rounds set at = '-infinity'"
    with psycopg.connect(empty_dsn, autocommit=True) as sql:
        sql.execute(died)
        assert alone("alerts", "--check").code == FAILED, "no worker looks, so the command does"
        assert alone("alerts", "close", "worker dead", "web-1").code == 0
        sql.execute(look)
        assert alone("alerts", "--check").code == 0
        sql.execute(died)
        sql.execute(look)
        assert alone("alerts", "--check").code == FAILED
        sql.execute("delete from rota.workers; delete from rota.alerts; delete from rota.audit")
