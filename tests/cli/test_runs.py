"""`rota runs`, `show`, `cancel`, `retry` and `queues`."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import psycopg
import pytest

from rota.cli.exit_codes import FAILED, NOT_FOUND

from .conftest import Rota
from .terminal import Program, Terminal, eventually

SHOP = ("-a", "shop:app")


def start(rota: Rota, *words: str) -> str:
    return rota("start", *SHOP, *words).out.splitlines()[0]


@pytest.fixture(scope="session")
def failed(shared_dsn: str, worker: Program) -> str:
    """Run that failed after two attempts."""
    words = ("start", *SHOP, "resize", "path=broken", "--wait")
    return Terminal(shared_dsn).run(*words).out.strip()


# Empty database


def test_an_empty_database_lists_nothing_as_json(alone: Rota) -> None:
    for command in ("runs", "queues"):
        done = alone(command, "--json")
        assert (done.code, done.out, done.err) == (0, "[]\n", "")


def test_an_empty_database_is_said_in_words(alone: Rota) -> None:
    assert alone("runs").out == "no runs yet; start one with `rota start TASK`\n"
    assert alone("runs", "--task", "x").out == "no run matches\n"
    assert alone("queues").out == "no queue has queued jobs\n0 running, 0 sleeping\n"


# Listing


def test_runs_are_listed_latest_first_and_page_by_page(alone: Rota) -> None:
    ids = [start(alone, "echo", f"value={each}") for each in range(3)]

    first = alone("runs", "--limit", "2", "--json").json()
    second = alone("runs", "--limit", "2", "--before", str(first[-1]["run"]), "--json").json()

    assert [str(each["run"]) for each in first + second] == ids[::-1]


def test_runs_are_listed_by_task_queue_and_state(alone: Rota) -> None:
    start(alone, "echo", "value=1")
    start(alone, "resize", "path=a", "--delay", "1h")

    for words in (("--task", "resize"), ("--queue", "images"), ("--state", "sleeping")):
        assert [each["name"] for each in alone("runs", *words, "--json").json()] == ["resize"]
    assert alone("runs", "--state", "failed").out == "no run matches\n"


def test_times_in_json_are_iso_8601_with_a_zone(rota: Rota, failed: str) -> None:
    shown = rota("show", failed, "--json").json()

    for name in ("created", "since", "finished"):
        assert datetime.fromisoformat(shown[name]).utcoffset() is not None
    assert datetime.fromisoformat(shown["attempts"][0]["at"]).utcoffset() is not None


def test_a_table_in_a_pipe_has_every_character_and_no_colour(alone: Rota) -> None:
    key = "k" * 300
    start(alone, "echo", "value=1", "--key", key)

    heading, line = alone("runs").out.splitlines()

    assert heading.split() == ["run", "task", "queue", "state", "attempt", "age", "key"]
    assert line.endswith(key)
    assert "\x1b" not in line


def test_a_table_on_a_terminal_fits_and_has_colour(alone: Rota, empty_dsn: str) -> None:
    start(alone, "echo", "value=1", "--key", "k" * 300)
    ours, theirs = pty.openpty()
    environment = {**Terminal(empty_dsn).environment, "COLUMNS": "60", "TERM": "xterm-256color"}

    subprocess.run(
        [sys.executable, "-m", "rota", "runs"], stdout=theirs, env=environment, check=True
    )

    os.close(theirs)
    printed = os.read(ours, 10_000).decode()
    os.close(ours)
    assert "\x1b[" in printed
    assert "kkk…" in printed


def test_text_from_the_database_moves_no_cursor(alone: Rota) -> None:
    start(alone, "echo", "value=1", "--key", "[red]\x1b[2J")

    assert alone("runs").out.splitlines()[1].endswith("[red]\\x1b[2J")


# One run


def test_a_failed_run_shows_its_traceback_and_every_attempt(rota: Rota, failed: str) -> None:
    shown = rota("show", failed)

    assert shown.code == 0
    assert f"run {failed} failed" in shown.out
    assert '"path": "broken"' in shown.out
    assert "Traceback (most recent call last):" in shown.out
    assert shown.out.count("ValueError: cannot read [bold]broken[/bold] \\x1b[31m") == 3
    assert "\x1b" not in shown.out


def test_a_failed_run_as_json_has_its_attempts(rota: Rota, failed: str) -> None:
    shown = rota("show", failed, "--json").json()

    assert (shown["state"], shown["attempt"], shown["error"]["attempt"]) == ("failed", 2, 2)
    assert [each["attempt"] for each in shown["attempts"]] == [1]
    assert shown["attempts"][0]["error"]["type"] == "ValueError"


def test_a_run_between_attempts_says_until_when(rota: Rota, worker: Program) -> None:
    run = start(rota, "tomorrow")
    eventually(lambda: rota("show", run, "--json").json()["state"] == "sleeping")

    shown = rota("show", run).out

    assert "attempt 1 failed, the next one waits: until" in shown
    assert "RuntimeError: not today" in shown


def test_a_ready_run_that_nobody_takes_says_so(rota: Rota) -> None:
    run = start(rota, "echo", "value=1", "--queue", "nobody")

    assert "no worker serves queue 'nobody' and knows task 'echo'" in rota("show", run).out


def test_a_running_run_names_its_worker(rota: Rota, worker: Program, tmp_path: Path) -> None:
    run = start(rota, "wait_for", f"file={tmp_path / 'go'}")
    eventually((tmp_path / "go.began").exists)

    shown = rota("show", run).out

    (tmp_path / "go").touch()
    assert f"run {run} running" in shown
    assert f"process {worker.pid}" in shown


# Actions


def test_a_ready_run_is_cancelled_and_can_be_tried_again(rota: Rota) -> None:
    run = start(rota, "echo", "value=1", "--queue", "nobody")

    assert rota("cancel", run).out == f"run {run} is cancelled\n"
    assert rota("show", run, "--json").json()["state"] == "cancelled"
    assert rota("retry", run).out == f"run {run} is queued for a retry\n"
    assert rota("show", run, "--json").json()["state"] == "queued"


def test_a_running_run_is_asked_to_stop(rota: Rota, worker: Program, tmp_path: Path) -> None:
    run = start(rota, "wait_for", f"file={tmp_path / 'never'}")
    eventually((tmp_path / "never.began").exists)

    assert "has been asked to stop" in rota("cancel", run).out
    eventually(lambda: rota("show", run, "--json").json()["state"] == "cancelled")


def test_a_run_that_is_over_cannot_be_cancelled(rota: Rota, failed: str) -> None:
    done = rota("cancel", failed)

    assert done.code == NOT_FOUND
    assert done.complaint == f"run {failed} has failed already"


def test_a_run_that_is_not_over_cannot_be_tried_again(rota: Rota) -> None:
    run = start(rota, "echo", "value=1", "--queue", "nobody")

    done = rota("retry", run)

    assert done.code == FAILED
    assert f"run {run} is queued" in done.complaint


def test_one_of_several_that_fails_does_not_spare_the_others(rota: Rota) -> None:
    run = start(rota, "echo", "value=1", "--queue", "nobody")

    done = rota("cancel", "999999999", run)

    assert done.code == NOT_FOUND
    assert done.out == f"run {run} is cancelled\n"


# Queues


def test_queues_warn_of_jobs_that_nobody_takes(alone: Rota) -> None:
    start(alone, "echo", "value=1")
    start(alone, "echo", "value=2")
    start(alone, "resize", "path=a", "--delay", "1h")

    done = alone("queues")

    heading, line, _, places, warning = done.out.splitlines()
    assert heading.split() == ["queue", "task", "queued", "oldest", "workers"]
    assert line.split()[:3] == ["default", "echo", "2"]
    assert line.endswith("none")
    assert places == "0 running, 1 sleeping"
    assert "knows task 'echo': 2 jobs wait until one is started" in warning


def test_queues_know_who_would_take_a_job(alone: Rota, empty_dsn: str) -> None:
    start(alone, "echo", "value=1")
    with psycopg.connect(empty_dsn) as connection:
        connection.execute(
            "insert into rota.workers (host, pid, version, queues, tasks, capacity) "
            "values ('h', 1, '0', '{default}', '{echo}', 1)"
        )

    [line] = alone("queues", "--json").json()

    assert (line["queued"], line["workers"]) == (1, 1)
    assert line["oldest"] >= 0
    assert "no worker" not in alone("queues").out


# Schema and global options


def test_the_apps_own_schema_is_looked_in(alone: Rota) -> None:
    assert alone("db", "migrate", "--schema", "second").code == 0
    run = start(alone, "--schema", "second", "echo", "value=1")

    assert [each["run"] for each in alone("runs", "--schema", "second", "--json").json()] == [
        int(run)
    ]
    assert alone("runs", *SHOP, "--json").json() == []


def test_options_go_before_the_command_or_after_it(alone: Rota, empty_dsn: str) -> None:
    start(alone, "echo", "value=1")

    before = alone("--dsn", empty_dsn, "--schema", "rota", "runs", "--json")
    after = alone("--dsn", "postgresql://127.0.0.1:1/x", "runs", "--dsn", empty_dsn, "--json")

    assert before.json() == after.json() != []


# Many runs


def test_all_that_match_are_cancelled_and_tried_again(alone: Rota) -> None:
    meant = [start(alone, "echo", f"value={each}", "--queue", "meant") for each in range(3)]
    [other] = [start(alone, "echo", "value=9", "--queue", "other")]

    asked = alone("cancel", "--all", "--queue", "meant")
    assert (asked.code, asked.out) == (NOT_FOUND, "")
    assert "3 runs would be affected; repeat the command with --yes" in asked.err
    done = alone("cancel", "--all", "--queue", "meant", "--yes")
    assert (done.code, done.out) == (0, "3 runs are cancelled\n")

    def states() -> dict[str, str]:
        return {str(each["run"]): each["state"] for each in alone("runs", "--json").json()}

    assert states() == {**dict.fromkeys(meant, "cancelled"), other: "queued"}
    again = alone("retry", "--all", "--state", "cancelled", "--yes")
    assert (again.code, again.out) == (0, "3 runs are queued for a retry\n")
    assert set(states().values()) == {"queued"}
    none = alone("retry", "--all", "--yes")
    assert (none.code, none.out) == (0, "no run matches that could be retried\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cancel",), "no run is given: pass RUN..., or --all"),
        (("cancel", "--all", "7"), "pass RUN..., or --all with filters, but not both"),
        (("retry", "7", "--state", "failed"), "filters and --yes need --all"),
        (("cancel", "7", "--yes"), "filters and --yes need --all"),
        (("cancel", "--all", "--state", "succeeded", "--yes"), "cannot be cancelled"),
    ],
)
def test_nothing_is_done_to_all_by_a_slip(alone: Rota, words: tuple[str, ...], said: str) -> None:
    run = start(alone, "echo", "value=1")
    done = alone(*words)
    assert done.code == 2
    assert said in done.err
    assert alone("show", run, "--json").json()["state"] == "queued"


def test_runs_are_found_by_key_time_and_text(alone: Rota) -> None:
    one = start(alone, "echo", 'value="needle"', "--key", "k-1")
    two = start(alone, "echo", "value=2")

    def found(*words: str) -> list[str]:
        return [str(each["run"]) for each in alone("runs", "--json", *words).json()]

    assert found("--key", "k-1") == [one]
    assert found("--find", "NEEDLE") == [one]
    assert found("--since", "2020-01-01") == [two, one]
    assert found("--until", "2020-01-01") == []
