"""`rota services`: the running instance, the standbys and the iterations of each service."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from rota.cli.exit_codes import NOT_FOUND
from support.cli_fixtures import Rota
from support.terminal import run_on_terminal


class ServiceFleet:
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
def fleet(empty_dsn: str) -> Iterator[ServiceFleet]:
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        yield ServiceFleet(connection)


def table(printed: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in printed.splitlines() if line.strip()]


def insert_monitored_service(town: ServiceFleet) -> None:
    """Insert a running service, two standbys, and one standby with an expired lease."""
    runner = town.instance(77, "filings", "watch")
    town.instance(78, "filings")
    town.instance(79, "filings")
    town.instance(80, "filings", left=-5)
    town.leads(runner, 77, "filings")
    town.service("filings", 200)
    town.iteration("filings", 412, 70)


def test_services_command_no_service_prints_hint(empty_rota: Rota) -> None:
    assert empty_rota("services").out.startswith(
        'no services yet; declare one with `@app.service("name", every=60)`'
    )
    assert empty_rota("services", "--json").json()["services"] == []


def test_services_command_lists_instance_and_standbys(
    empty_rota: Rota, fleet: ServiceFleet
) -> None:
    insert_monitored_service(fleet)

    heading, line, *rest = table(empty_rota("services").out)
    [listed, _] = empty_rota("services", "--json").json()["services"]

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
    assert (listed["host"], listed["pid"], listed["iteration"]) == ("web-1", 77, "412")


def test_services_command_ended_term_has_no_instance(empty_rota: Rota, fleet: ServiceFleet) -> None:
    for number, name in enumerate(("late", "seat")):
        fleet.service(name, 60)
        fleet.leads(fleet.instance(number, left=-1), number, name, left=-1)
    fleet._sql.execute("update rota.leaders set expires = null where name = 'service seat'")

    printed = empty_rota("services").out

    assert [each["host"] for each in empty_rota("services", "--json").json()["services"]] == [
        None,
        None,
    ]
    assert "no instance runs service 'late': none of the running instances has it" in printed


def test_services_command_failures_show_count_and_next_retry(
    empty_rota: Rota, fleet: ServiceFleet
) -> None:
    runner = fleet.instance(77)
    for name in ("breaks", "goes on", "slips"):
        fleet.leads(runner, 77, name)
    fleet.service("breaks", 5, failures=3, rest=130)
    fleet.iteration(
        "breaks", 412, 70, outcome="failed", error='{"type": "OSError", "message": "x"}'
    )
    fleet.service("goes on", None)
    fleet.iteration("goes on", 412, 70, took=None, outcome=None)
    fleet.service("slips", 500, failures=1)
    fleet.iteration("slips", 412, 70, outcome="lost")

    _, *lines = table(empty_rota("services").out)

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


def test_services_show_lists_last_iterations(empty_rota: Rota, fleet: ServiceFleet) -> None:
    insert_monitored_service(fleet)
    for number in range(391, 412):
        fleet.iteration("filings", number, 70 + (412 - number) * 200)
    failed = '{"type": "OSError", "message": "no space left", "traceback": "…"}'
    fleet._sql.execute(
        "update rota.iterations set outcome = 'failed', error = %s where number = 411", (failed,)
    )

    facts, iterations = empty_rota("services", "show", "filings").out.split("\n\n")
    document = empty_rota("services", "show", "filings", "--json", "--limit", "2").json()

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
    assert [each["number"] for each in document["iterations"]] == ["412", "411"]
    assert document["iterations"][1]["error"]["message"] == "no space left"


def test_services_show_unstarted_and_unknown_service_are_reported(
    empty_rota: Rota, fleet: ServiceFleet
) -> None:
    fleet.instance(77, "watch")

    assert empty_rota("services", "show", "watch").out.endswith("\nit has never run\n")
    done = empty_rota("services", "show", "nix")
    assert (done.code, done.complaint) == (
        NOT_FOUND,
        "there is no service 'nix'; list the services with `rota services`",
    )


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("words", [("services",), ("services", "show", "filings")])
def test_services_command_narrow_terminal_cuts_nothing(
    fleet: ServiceFleet, empty_dsn: str, columns: int, words: tuple[str, ...]
) -> None:
    insert_monitored_service(fleet)
    fleet.service("the-monitor-of-all-the-filings-that-there-are", 60, failures=12)

    printed = run_on_terminal(empty_dsn, columns, *words)

    assert all(len(line) <= columns for line in printed.splitlines())
    assert "…" not in printed
    assert "web-1:77" in printed
    assert ("web-1:78, web-1:79" in printed) is (columns == 120 or "show" in words)
