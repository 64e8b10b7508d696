"""`rota services`: the running instance, the standbys and the iterations of each service."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from rota.cli.exit_codes import NOT_FOUND

from .conftest import Rota
from .terminal import on_a_terminal


class Town:
    """Fleet that is inserted into the tables, as services write it."""

    def __init__(self, sql: psycopg.Connection[Any]) -> None:
        self._sql = sql

    def instance(self, pid: int, *services: str, left: float = 60) -> str:
        id = str(uuid4())
        self._sql.execute(
            "insert into rota.instances (id, host, pid, label, version, expires, services, started)"
            " values (%s, 'web-1', %s, '', '', now() + make_interval(secs => %s), %s,"
            " now() + make_interval(secs => %s))",
            (id, pid, left, list(services), pid),
        )
        return id

    def leads(self, instance: str, pid: int, service: str, left: float = 60) -> None:
        self._sql.execute(
            "insert into rota.leaders (name, term, instance, host, pid, label, since, expires,"
            " session_lock)"
            " values (%s, 31, %s, 'web-1', %s, '', now() - interval '2 h',"
            " now() + make_interval(secs => %s), 1)",
            (f"service {service}", instance, pid, left),
        )

    def service(self, name: str, every: float | None, **values: object) -> None:
        given = {"iteration": 412, "ago": 70.0, "failures": 0, "rest": None, **values}
        self._sql.execute(
            "insert into rota.services (name, every, iteration, started, failures, retry_at)"
            " values (%(name)s, %(every)s, %(iteration)s, now() - make_interval(secs => %(ago)s),"
            " %(failures)s, now() + make_interval(secs => %(rest)s))",
            {**given, "name": name, "every": every},
        )

    def iteration(self, service: str, number: int, ago: float, **values: object) -> None:
        given = {"took": 2.0, "outcome": "succeeded", "error": None, **values}
        self._sql.execute(
            "insert into rota.iterations (service, number, term, instance, host, pid, started, ended,"
            " outcome, error) values (%(service)s, %(number)s, 31, gen_random_uuid(), 'web-1', 77,"
            " now() - make_interval(secs => %(ago)s),"
            " now() - make_interval(secs => %(ago)s - %(took)s), %(outcome)s, %(error)s)",
            {**given, "service": service, "number": number, "ago": ago},
        )


@pytest.fixture
def town(empty_dsn: str) -> Iterator[Town]:
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        yield Town(connection)


def table(printed: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in printed.splitlines() if line.strip()]


def monitored(town: Town) -> None:
    """Insert a running service, two standbys, and one standby with an expired lease."""
    runner = town.instance(77, "filings", "watch")
    town.instance(78, "filings")
    town.instance(79, "filings")
    town.instance(80, "filings", left=-5)
    town.leads(runner, 77, "filings")
    town.service("filings", 200)
    town.iteration("filings", 412, 70)


def test_where_there_is_none_it_says_how_one_is_made(alone: Rota) -> None:
    assert alone("services").out.startswith(
        'no services yet; declare one with `@app.service("name", every=60)`'
    )
    assert alone("services", "--json").json() == []


def test_a_service_is_listed_with_who_runs_it_and_who_stands_by(alone: Rota, town: Town) -> None:
    monitored(town)

    heading, line, *rest = table(alone("services").out)
    [listed, _] = alone("services", "--json").json()

    assert heading == [
        "service",
        "every",
        "instance",
        "standby",
        "last",
        "outcome",
        "duration",
        "next",
    ]
    assert line == [
        "filings",
        "3 min 20 s",
        "web-1:77",
        "web-1:78, web-1:79",
        "#412 1 min ago",
        "succeeded",
        "2.0 s",
        "in 2 min",
    ]
    assert rest == [
        ["watch", "none", "web-1:77"],
        ["no instance runs service 'watch': a standby instance takes it within seconds"],
    ]
    assert listed["standing_by"] == ["web-1:78", "web-1:79"]
    assert (listed["host"], listed["pid"], listed["iteration"]) == ("web-1", 77, 412)


def test_a_term_that_has_run_out_or_whose_session_is_gone_is_nobodys(
    alone: Rota, town: Town
) -> None:
    for number, name in enumerate(("late", "seat")):
        town.service(name, 60)
        town.leads(town.instance(number, left=-1), number, name, left=-1)
    town._sql.execute("update rota.leaders set expires = null where name = 'service seat'")

    printed = alone("services").out

    assert [each["host"] for each in alone("services", "--json").json()] == [None, None]
    assert "no instance runs service 'late': none of the running instances has it" in printed


def test_what_fails_is_said_with_how_often_and_when_it_is_tried_again(
    alone: Rota, town: Town
) -> None:
    runner = town.instance(77)
    for name in ("breaks", "goes on", "slips"):
        town.leads(runner, 77, name)
    town.service("breaks", 5, failures=3, rest=130)
    town.iteration("breaks", 412, 70, outcome="failed", error='{"type": "OSError", "message": "x"}')
    town.service("goes on", None)
    town.iteration("goes on", 412, 70, took=None, outcome=None)
    town.service("slips", 500, failures=1)
    town.iteration("slips", 412, 70, outcome="lost")

    _, *lines = table(alone("services").out)

    assert lines == [
        [
            "breaks",
            "5.0 s",
            "web-1:77",
            "none",
            "#412 1 min ago",
            "failed 3 times",
            "2.0 s",
            "in 2 min",
        ],
        ["goes on", "web-1:77", "none", "#412 1 min ago", "running"],
        ["slips", "8 min 20 s", "web-1:77", "none", "#412 1 min ago", "lost", "due"],
    ]


def test_one_service_is_shown_with_its_last_iterations(alone: Rota, town: Town) -> None:
    monitored(town)
    for number in range(391, 412):
        town.iteration("filings", number, 70 + (412 - number) * 200)
    failed = '{"type": "OSError", "message": "no space left", "traceback": "…"}'
    town._sql.execute(
        "update rota.iterations set outcome = 'failed', error = %s where number = 411", (failed,)
    )

    facts, iterations = alone("services", "show", "filings").out.split("\n\n")
    document = alone("services", "show", "filings", "--json", "--limit", "2").json()

    assert table(facts) == [
        ["service", "filings"],
        ["every", "3 min 20 s"],
        ["instance", "web-1:77, for 2 h"],
        ["standby", "web-1:78, web-1:79"],
        ["next", "in 2 min"],
    ]
    heading, last, before, *rest = table(iterations)
    assert heading == ["iteration", "term", "instance", "started", "duration", "outcome", "error"]
    assert (last[0], last[-1]) == ("412", "succeeded")
    assert (before[0], before[-2:]) == ("411", ["failed", "OSError: no space left"])
    assert [each[0] for each in rest] == [str(each) for each in range(410, 392, -1)]
    assert [each["number"] for each in document["iterations"]] == [412, 411]
    assert document["iterations"][1]["error"]["message"] == "no space left"


def test_one_that_never_ran_and_one_that_is_not_known(alone: Rota, town: Town) -> None:
    town.instance(77, "watch")

    assert alone("services", "show", "watch").out.endswith("\nit has never run\n")
    done = alone("services", "show", "nix")
    assert (done.code, done.complaint) == (
        NOT_FOUND,
        "there is no service 'nix'; list the services with `rota services`",
    )


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("words", [("services",), ("services", "show", "filings")])
def test_nothing_is_cut_on_a_terminal(
    town: Town, empty_dsn: str, columns: int, words: tuple[str, ...]
) -> None:
    monitored(town)
    town.service("the-monitor-of-all-the-filings-that-there-are", 60, failures=12)

    printed = on_a_terminal(empty_dsn, columns, *words)

    assert all(len(line) <= columns for line in printed.splitlines())
    assert "…" not in printed
    assert "web-1:77" in printed
    assert ("web-1:78, web-1:79" in printed) is (columns == 120 or "show" in words)
