"""`rota schedules`: the list, one schedule, and the actions on it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from rota import Rota as App
from rota.cli.exit_codes import FAILED, NOT_FOUND, USAGE_ERROR
from support.cli_fixtures import Rota
from support.terminal import CommandResult
from support.worker_rows import cells, insert_worker, run_on_terminal

CLOCK = ("-a", "clock:app")
HOUR = timedelta(hours=1)

Make = Callable[[Callable[[App], Awaitable[Any]]], None]


@pytest.fixture
def registry(empty_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def make(empty_dsn: str) -> Make:
    """Run an action on the schedules of an app like the one of the command line."""

    def making(do: Callable[[App], Awaitable[Any]]) -> None:
        async def main() -> None:
            async with App(empty_dsn) as app:

                @app.task
                async def report(day: str = "today") -> None: ...

                @app.flow("etl").task
                async def extract(day: str) -> None: ...

                await do(app)

        asyncio.run(main())

    return making


def register_worker(registry: psycopg.Connection[Any], *tasks: str) -> None:
    """Register a worker that knows these tasks."""
    worker = insert_worker(registry)
    registry.execute("update rota.workers set tasks = %s where id = %s", (list(tasks), worker))


def rows(done: CommandResult) -> list[list[str]]:
    assert done.code == 0, done.err
    return cells(done.out.split("\n\n")[0])


# The list


def test_schedules_command_no_schedule_prints_hint(empty_rota: Rota) -> None:
    assert empty_rota("schedules").out == (
        'no schedule yet; `@app.schedule("0 7 * * *")` above a task declares one, and a worker that '
        "starts makes it known\n"
    )
    assert empty_rota("schedules", "--json").json()["schedules"] == []
    assert empty_rota("schedules", "--state", "paused").out == "no schedule matches\n"


def test_schedules_command_lists_rule_target_state_and_next_tick(
    empty_rota: Rota, registry: psycopg.Connection[Any], make: Make
) -> None:
    async def several(app: App) -> None:
        create = app.schedules.create
        await create("a", "report", cron="0 7 * * mon-fri", tz="Europe/Paris", tenant="acme")
        await create("b", "etl", every=90, input={"day": "monday"})
        await create("c", action="fax", every=5)
        await create("d", action="mail", every=3660)
        await app.schedules.pause("b", "wait for the audit")

    make(several)
    register_worker(registry, "report", "action.mail")
    registry.execute(
        "update rota.schedules set next = rota.clock() + interval '61 min' where name in ('a', 'c')"
    )

    assert rows(empty_rota("schedules")) == [
        ["a", "acme", "0 7 * * mon-fri (Europe/Paris)", "report", "active", "in 1 h"],
        ["b", "every 1 min 30 s", "flow etl", "paused", "wait for the audit"],
        ["c", "every 5 s", "action fax", "unknown", "in 1 h", "no worker knows action 'fax'"],
        ["d", "every 1 h 1 min", "action mail", "active", "in 1 h"],
    ]
    assert [each[0] for each in rows(empty_rota("schedules", "--state", "paused"))] == ["b"]
    assert [each[0] for each in rows(empty_rota("schedules", "--tenant", "acme"))] == ["a"]
    assert [each[0] for each in rows(empty_rota("schedules", "--after", "b", "--limit", "1"))] == [
        "c"
    ]


@pytest.mark.parametrize(
    ("kind", "skill", "known"),
    [
        ("report", "report", True),
        ("report", "report.x", False),
        ("etl", "etl.extract", True),
        ("etl", "etl", False),
        ("etl", "other.extract", False),
    ],
)
def test_schedules_command_matches_workers_by_task_or_flow_tasks(
    empty_rota: Rota,
    registry: psycopg.Connection[Any],
    make: Make,
    kind: str,
    skill: str,
    known: bool,
) -> None:
    make(lambda app: app.schedules.create("x", kind, every=60, input={"day": "monday"}))
    register_worker(registry, skill)

    [found] = empty_rota("schedules", "--json").json()["schedules"]
    assert found["has_worker"] is known
    told = f"no worker knows its {'task' if kind == 'report' else 'flow'}"
    assert (told in empty_rota("schedules").out) is not known
    assert (told in empty_rota("schedules", "show", "x").out) is not known


def test_schedules_command_without_worker_prints_warning(empty_rota: Rota, make: Make) -> None:
    make(lambda app: app.schedules.create("x", action="fax", every=60))

    done = empty_rota("schedules")

    assert "no worker knows" not in done.out
    assert done.out.endswith(
        "\nno worker is running, so no tick starts a run; start one with `rota worker MODULE:APP`\n"
    )


def test_schedules_command_lists_last_tick_and_failures(
    empty_rota: Rota, registry: psycopg.Connection[Any], make: Make
) -> None:
    make(lambda app: app.schedules.create("x", "report", every=3660))
    register_worker(registry, "report")
    registry.execute(
        "insert into rota.ticks (schedule, tick, number, state, at, host, pid, run, outcome, ended)"
        " values ('x', now() - interval '3 h', 1, 'started', now() - interval '3 h', 'web-1', 7, 9,"
        "         'failed', now() - interval '2 h')"
    )
    registry.execute(
        "update rota.schedules set failures = 4, last_failure = now() - interval '2 h'"
    )

    [[*_, last, following, why]] = rows(empty_rota("schedules"))

    assert (last, following, why) == ("failed 3 h ago", "in 1 h", "4 failures in a row")


@pytest.mark.parametrize("columns", [80, 120])
def test_schedules_command_fits_the_terminal(
    empty_rota: Rota, empty_dsn: str, registry: psycopg.Connection[Any], make: Make, columns: int
) -> None:
    async def several(app: App) -> None:
        await app.schedules.create(
            "morning report", "report", cron="0 7 * * mon-fri", tz="Asia/Tokyo"
        )
        await app.schedules.create("new year", "report", at=datetime(2099, 1, 1, tzinfo=UTC))
        await app.schedules.pause("morning report", "wait for the audit, which takes until monday")

    make(several)
    register_worker(registry, "report")

    printed = run_on_terminal(empty_dsn, columns, "schedules")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", printed).replace("\r", "").splitlines()

    assert all(len(line) <= columns for line in lines)
    beside = any("0 7 * * mon-fri (Asia/Tokyo)" in line for line in lines)
    assert beside is (columns == 120)
    assert "morning report: wait for the audit, which takes until monday" in lines


# One schedule


def test_schedules_show_lists_next_ticks_in_zone_and_utc(empty_rota: Rota, make: Make) -> None:
    async def one(app: App) -> None:
        await app.schedules.create(
            "x",
            "report",
            cron="0 0 1 1 *",
            tz="Asia/Tokyo",
            input={"day": "monday"},
            catch_up="all",
            at_most=7,
            pause_after=3,
            max_runs=1000,
        )

    make(one)

    done = empty_rota("schedules", "show", "x")

    assert done.code == 0
    year = datetime.now(UTC).year + 1
    assert re.search(
        rf"{year}-01-01 00:00:00 JST +{year - 1}-12-31 15:00:00 UTC +in \d+ d", done.out
    )
    assert done.out.count("-01-01 00:00:00 JST") == 5
    for name, value in (
        ("target", "task report"),
        ("when", r"0 0 1 1 \* \(Asia/Tokyo\)"),
        ("defined", "at run time, .* ago"),
        ("overlap", "skip"),
        ("catch up", "all, 7 at most"),
        ("at most", "1,000 runs"),
        ("pauses", "after 3 failures in a row"),
        ("runs", "0 runs by the clock"),
        ("workers", "none is running, so it starts no runs"),
    ):
        assert re.search(rf"^{name} +{value}$", done.out, re.MULTILINE), name
    assert '"day": "monday"' in done.out
    assert "it has had no tick yet" in done.out


def test_schedules_show_lists_last_ticks_with_outcomes(
    empty_rota: Rota, registry: psycopg.Connection[Any], make: Make
) -> None:
    make(lambda app: app.schedules.create("x", "report", every=60))
    for number, state, late, took, why, backfilled in (
        (1, "started", 0.25, 2, None, False),
        (2, "skipped", 0, None, "the run before it has not ended", False),
        (2, "started", 9000, 3, None, True),
    ):
        registry.execute(
            "insert into rota.ticks (schedule, tick, number, state, reason, backfilled, at, host, pid,"
            " run, outcome, ended) values ('x', '2026-03-02 12:00Z'::timestamptz + %(n)s *"
            " interval '1 min' + %(back)s * interval '1 s', %(n)s, %(state)s, %(why)s, %(back)s = 1,"
            " '2026-03-02 12:00Z'::timestamptz + %(n)s * interval '1 min' + %(late)s *"
            " interval '1 s', 'web-1', 4242, %(run)s, %(outcome)s, '2026-03-02 12:00Z'::timestamptz +"
            " %(n)s * interval '1 min' + (%(late)s + %(took)s) * interval '1 s')",
            {
                "n": number,
                "state": state,
                "why": why,
                "back": int(backfilled),
                "late": late,
                "run": None if took is None else number + 7,
                "outcome": None if took is None else "succeeded",
                "took": took,
            },
        )

    printed = cells(empty_rota("schedules", "show", "x").out.split("\n\n")[-1])

    assert printed == [
        ["2026-03-02 12:02:01 UTC", "9", "succeeded", "3.0 s", "web-1:4242", "backfilled"],
        [
            "2026-03-02 12:02:00 UTC",
            printed[1][1],  # without microseconds, which this terminal does not show
            "skipped",
            "web-1:4242",
            "the run before it has not ended",
        ],
        ["2026-03-02 12:01:00 UTC", "250 ms", "8", "succeeded", "2.0 s", "web-1:4242"],
    ]
    [latest, *_] = empty_rota("schedules", "show", "x", "--json").json()["ticks"]
    lasted = datetime.fromisoformat(latest["ended"]) - datetime.fromisoformat(latest["handled"])
    assert (lasted, latest["backfilled"], latest["host"]) == (timedelta(seconds=3), True, "web-1")
    assert len(empty_rota("schedules", "show", "x", "--limit", "1", "--json").json()["ticks"]) == 1


# Actions


def test_schedules_pause_and_resume_change_the_state(empty_rota: Rota, make: Make) -> None:
    make(lambda app: app.schedules.create("x", "report", cron="0 7 * * *"))
    done = empty_rota("schedules", "pause", "x", "--reason", "noise")
    assert (done.code, done.out) == (0, "schedule 'x' is paused: noise\n")
    assert empty_rota("schedules", "show", "x", "--json").json()["reason"] == "noise"

    done = empty_rota("schedules", "resume", "x")
    assert done.code == 0
    assert re.fullmatch(r"schedule 'x' is active; its next tick is 2.* 07:00:00 UTC\n", done.out)
    for verb, state in (("pause", "paused"), ("resume", "active")):
        assert empty_rota("schedules", verb, "x", "--json").json()["state"] == state


def test_schedules_resume_repairs_next_tick_after_clock_set_back(
    empty_rota: Rota, registry: psycopg.Connection[Any], make: Make
) -> None:
    make(lambda app: app.schedules.create("x", "report", every=60))
    registry.execute("update rota.schedules set next = next + interval '1 h'")
    assert "the clock was set back" in empty_rota("schedules", "show", "x").out
    assert empty_rota("schedules", "resume", "x").code == 0
    assert "the clock was set back" not in empty_rota("schedules", "show", "x").out


def test_schedules_pause_and_resume_of_ended_schedule_are_refused(
    empty_rota: Rota, registry: psycopg.Connection[Any], make: Make
) -> None:
    make(lambda app: app.schedules.create("x", "report", every=60))
    registry.execute("update rota.schedules set state = 'ended', next = null, due = null")
    for verb in ("pause", "resume"):
        done = empty_rota("schedules", verb, "x")
        assert done.code == NOT_FOUND
        assert "'x' has ended" in done.complaint


@pytest.mark.parametrize(
    "words",
    [
        ("show", "x"),
        ("pause", "x"),
        ("resume", "x"),
        ("delete", "x", "--yes"),
        ("trigger", *CLOCK, "x"),
        ("backfill", *CLOCK, "x", "--from", "2026-03-01"),
    ],
    ids=lambda words: words[0],
)
def test_schedules_action_on_missing_schedule_is_not_found(
    empty_rota: Rota, words: tuple[str, ...]
) -> None:
    done = empty_rota("schedules", *words)

    assert done.code == NOT_FOUND
    assert done.complaint.startswith("there is no schedule called 'x'")


def test_schedules_trigger_prints_the_run(empty_rota: Rota, make: Make) -> None:
    make(lambda app: app.schedules.create("x", "etl", every=60, input={"day": "monday"}))

    run = empty_rota("schedules", "trigger", "x", *CLOCK).out.strip()
    again = empty_rota(*CLOCK, "schedules", "trigger", "x", "--json").json()

    assert empty_rota("show", run, "--json").json()["name"] == "etl"
    assert again == {"run": again["run"], "created": True}
    assert int(run) < int(again["run"])


@pytest.mark.parametrize("words", [("trigger", "x"), ("backfill", "x", "--from", "2026-03-01")])
def test_schedules_trigger_and_backfill_need_the_app(
    empty_rota: Rota, words: tuple[str, ...]
) -> None:
    done = empty_rota("schedules", *words)

    assert done.code == USAGE_ERROR
    assert "needs the app's code: use -a MODULE:APP" in done.complaint


def test_schedules_backfill_uses_the_schedules_time_zone(empty_rota: Rota, make: Make) -> None:
    make(lambda app: app.schedules.create("x", "report", cron="0 7 * * *", tz="Asia/Tokyo"))
    words = ("schedules", "backfill", *CLOCK, "x", "--from", "2026-03-01", "--to")

    done = empty_rota(*words, "2026-03-03 07:30")
    first, last = (int(each) for each in re.findall(r"\d+", done.out)[1:])
    assert done.out == f"3 runs were started: {first} to {last}\n"
    planned = [
        each["planned"] for each in empty_rota("schedules", "show", "x", "--json").json()["ticks"]
    ]
    assert planned == [f"2026-{day}T22:00:00Z" for day in ("03-02", "03-01", "02-28")]

    assert empty_rota(*words, "2026-03-03 07:30").out.startswith("no run was started: ")
    done = empty_rota(*words, "2026-03-03T22:00:01+00:00", "--json")
    assert len(done.json()["runs"]) == 1


def test_schedules_backfill_of_many_ticks_prints_progress(
    empty_rota: Rota, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.engine.scheduling.backfill.MAX_BATCH_RUNS", 1000)
    make(lambda app: app.schedules.create("x", "report", cron="* * * * *"))
    words = ("schedules", "backfill", *CLOCK, "x", "--from", "2026-03-01T00Z")

    done = empty_rota(*words, "--to", "2026-03-02T12Z")

    assert done.err.splitlines() == ["1,000 of 2,160 ticks", "2,000 of 2,160 ticks"]
    assert done.out.startswith("2,160 runs were started: ")
    assert empty_rota(*words, "--to", "tomorrow").code == USAGE_ERROR
    assert "backfill ends at now" in empty_rota(*words, "--to", "2099-01-01").complaint


def test_schedules_delete_needs_yes_and_no_declaring_worker(
    empty_rota: Rota, registry: psycopg.Connection[Any], make: Make
) -> None:
    make(lambda app: app.schedules.create("x", "report", every=60))
    registry.execute("update rota.schedules set declared = true")
    insert_worker(registry)
    registry.execute("update rota.workers set schedules = '{x}'")
    done = empty_rota("schedules", "delete", "x")
    assert done.code == FAILED
    assert "would be deleted" in done.out
    assert "while a running worker declares it, it cannot be deleted" in done.out
    assert done.complaint == "nothing was deleted; repeat the command with --yes to delete it"
    assert empty_rota("schedules", "show", "x").code == 0

    refused = empty_rota("schedules", "delete", "x", "--yes")
    assert refused.code != 0
    assert "the next worker would create it again" in refused.complaint
    # No worker declares it any more, so it can be deleted.
    registry.execute("update rota.workers set schedules = '{}'")
    assert empty_rota("schedules", "delete", "x", "--yes").out == "schedule 'x' is deleted\n"
    assert empty_rota("schedules", "show", "x").code == NOT_FOUND
