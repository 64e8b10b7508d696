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
from support.cli_fixtures import Rota
from support.terminal import run_on_terminal

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


def test_alerts_command_no_alert_prints_hint(empty_rota: Rota) -> None:
    assert empty_rota("alerts").out == "no alert is open; list closed alerts with --all\n"
    assert empty_rota("alerts", "--all").out == "no alerts yet\n"
    assert empty_rota("alerts", "--json").json()["alerts"] == []
    assert empty_rota("alerts", "--check").code == 0


def test_alerts_command_open_alert_is_listed_and_fails_check(
    empty_rota: Rota, alert: psycopg.Connection[Any]
) -> None:
    listed, checked = empty_rota("alerts"), empty_rota("alerts", "--check")

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
    assert empty_rota("alerts", "--all", "--limit", "1", "--check").code == FAILED, (
        "what is open is first"
    )
    [document] = empty_rota("alerts", "--json").json()["alerts"]
    assert (document["kind"], document["subject"]) == ("lock held too long", "invoices")
    assert document["cleared"] is None


def test_alerts_command_closes_resolved_alerts(
    empty_rota: Rota, alert: psycopg.Connection[Any]
) -> None:
    alert.execute("update rota.locks set expires = now() - interval '1 s'")

    assert empty_rota("alerts", "--check").code == 0
    assert empty_rota("alerts").out.startswith("no alert is open")
    assert table(empty_rota("alerts", "--all").out) == [
        ["alert", "raised", "duration", "reported by", "message"],
        ["lock held too long", "1 min ago", "1 min 10 s", "web-1:4242", MESSAGE],
    ]


async def test_alerts_command_lists_the_message_of_the_raised_event(
    empty_rota: Rota, empty_dsn: str
) -> None:
    async with Harness(App(empty_dsn)) as harness:
        async with harness.app.lock("invoices", max_held=0.1):
            raised = await harness.wait_for_event(AlertRaised)
            for _ in range(100):
                listed = (await asyncio.to_thread(empty_rota, "alerts", "--json")).json()["alerts"]
                if listed:
                    break
                await asyncio.sleep(0.01)
    again = (await asyncio.to_thread(empty_rota, "alerts", "--check")).code

    assert [each["message"] for each in listed] == [raised.message]
    assert again == 0


@pytest.mark.parametrize("columns", [80, 120])
def test_alerts_command_narrow_terminal_keeps_the_whole_message(
    alert: psycopg.Connection[Any], empty_dsn: str, columns: int
) -> None:
    printed = run_on_terminal(empty_dsn, columns, "alerts")

    assert all(len(line) <= columns for line in printed.splitlines())
    assert "declared" in printed
    assert "…" not in printed


# Acknowledging


def test_alerts_ack_passes_check_until_acknowledgement_expires(
    empty_rota: Rota, alert: psycopg.Connection[Any]
) -> None:
    done = empty_rota("alerts", "ack", "lock held too long", "invoices", "--for", "1h")
    assert (done.code, done.out) == (0, "acknowledged for 1 h: lock held too long: invoices\n")

    assert empty_rota("alerts", "--check").code == 0
    [line] = empty_rota("alerts", "--json").json()["alerts"]
    assert line["cleared"] is None
    assert "@" in line["acknowledged_by"]
    assert "handled by" in empty_rota("alerts").out

    alert.execute("update rota.alerts set acknowledged_until = now() - interval '1 s'")
    assert empty_rota("alerts", "--check").code == FAILED


def test_alerts_close_records_the_operator_in_audit(
    empty_rota: Rota, alert: psycopg.Connection[Any]
) -> None:
    done = empty_rota("alerts", "close", "lock held too long")
    assert (done.code, done.out) == (0, "closed: lock held too long: invoices\n")
    assert empty_rota("alerts", "--check").code == 0
    [line] = empty_rota("alerts", "--all", "--json").json()["alerts"]
    assert "@" in line["closed_by"]
    [entry] = empty_rota("audit", "--json").json()["entries"]
    assert (entry["action"], entry["subject"]) == ("close alert", "lock held too long: invoices")
    asked = (
        "--operator",
        entry["operator"],
        "--action",
        "close alert",
        "--subject",
        entry["subject"],
    )
    assert empty_rota("audit", *asked, "--json").json()["entries"] == [entry]
    assert empty_rota("audit", "--operator", "nobody").out.startswith("no operator action matches")

    again = empty_rota("alerts", "close", "lock held too long", "invoices")
    assert again.code == NOT_FOUND
    assert "no alert 'lock held too long' about 'invoices' is open" in again.err


def test_alerts_close_of_dead_worker_alert_holds_until_next_death(
    empty_rota: Rota, empty_dsn: str
) -> None:
    died = (
        "insert into rota.workers (host, pid, version, queues, tasks, capacity, state, last_beat, ended)"
        " values ('web-1', 1, '', '{default}', '{}', 1, 'dead', now(), now())"
    )
    look = "update rota.alert_rounds set at = '-infinity'"
    with psycopg.connect(empty_dsn, autocommit=True) as sql:
        sql.execute(died)
        assert empty_rota("alerts", "--check").code == FAILED, (
            "no worker looks, so the command does"
        )
        assert empty_rota("alerts", "close", "worker dead", "web-1").code == 0
        sql.execute(look)
        assert empty_rota("alerts", "--check").code == 0
        sql.execute(died)
        sql.execute(look)
        assert empty_rota("alerts", "--check").code == FAILED
        sql.execute("delete from rota.workers; delete from rota.alerts; delete from rota.audit")
