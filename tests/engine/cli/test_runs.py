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
from support.cli_fixtures import Rota
from support.terminal import Program, Terminal, eventually

SHOP = ("-a", "shop:app")


def start(rota: Rota, *words: str) -> str:
    return rota("start", *SHOP, *words).out.splitlines()[0]


@pytest.fixture(scope="session")
def failed(shared_dsn: str, worker: Program) -> str:
    """Run that failed after two attempts."""
    words = ("start", *SHOP, "resize", "path=broken", "--wait")
    return Terminal(shared_dsn).run(*words).out.strip()


# Empty database


def test_runs_and_queues_json_empty_database_prints_empty_list(empty_rota: Rota) -> None:
    for command, document in (
        ("runs", {"runs": [], "next": None}),
        ("queues", {"queues": [], "paused": []}),
    ):
        done = empty_rota(command, "--json")
        assert (done.json(), done.err) == (document, "")


def test_runs_and_queues_empty_database_prints_hint(empty_rota: Rota) -> None:
    assert empty_rota("runs").out == "no runs yet; start one with `rota start TASK`\n"
    assert empty_rota("runs", "--task", "x").out == "no run matches\n"
    assert empty_rota("queues").out == "no queue has queued jobs\n0 running, 0 sleeping\n"


# Listing


def test_runs_command_lists_newest_first_in_pages(empty_rota: Rota) -> None:
    ids = [start(empty_rota, "echo", f"value={each}") for each in range(3)]

    first = empty_rota("runs", "--limit", "2", "--json").json()["runs"]
    second = empty_rota("runs", "--limit", "2", "--before", str(first[-1]["run"]), "--json").json()[
        "runs"
    ]

    assert [str(each["run"]) for each in first + second] == ids[::-1]


def test_runs_command_filters_by_task_queue_and_state(empty_rota: Rota) -> None:
    start(empty_rota, "echo", "value=1")
    start(empty_rota, "resize", "path=a", "--delay", "1h")

    for words in (("--task", "resize"), ("--queue", "images"), ("--state", "sleeping")):
        assert [each["name"] for each in empty_rota("runs", *words, "--json").json()["runs"]] == [
            "resize"
        ]
    assert empty_rota("runs", "--state", "failed").out == "no run matches\n"


def test_show_json_times_are_iso_8601_with_zone(rota: Rota, failed: str) -> None:
    shown = rota("show", failed, "--json").json()

    for name in ("created", "since", "finished"):
        assert datetime.fromisoformat(shown[name]).utcoffset() is not None
    assert datetime.fromisoformat(shown["attempts"][0]["at"]).utcoffset() is not None


def test_runs_command_in_pipe_prints_full_text_without_colour(empty_rota: Rota) -> None:
    key = "k" * 300
    start(empty_rota, "echo", "value=1", "--key", key)

    heading, line = empty_rota("runs").out.splitlines()

    assert heading.split() == ["run", "task", "queue", "state", "attempt", "age", "key"]
    assert line.endswith(key)
    assert "\x1b" not in line


def test_runs_command_on_terminal_is_cut_and_coloured(empty_rota: Rota, empty_dsn: str) -> None:
    start(empty_rota, "echo", "value=1", "--key", "k" * 300)
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


def test_runs_command_control_characters_are_escaped(empty_rota: Rota) -> None:
    start(empty_rota, "echo", "value=1", "--key", "[red]\x1b[2J")

    assert empty_rota("runs").out.splitlines()[1].endswith("[red]\\x1b[2J")


# One run


def test_show_failed_run_prints_traceback_and_attempts(rota: Rota, failed: str) -> None:
    shown = rota("show", failed)

    assert shown.code == 0
    assert f"run {failed} failed" in shown.out
    assert '"path": "broken"' in shown.out
    assert "Traceback (most recent call last):" in shown.out
    assert shown.out.count("ValueError: cannot read [bold]broken[/bold] \\x1b[31m") == 3
    assert "\x1b" not in shown.out


def test_show_json_failed_run_has_its_attempts(rota: Rota, failed: str) -> None:
    shown = rota("show", failed, "--json").json()

    assert (shown["state"], shown["attempt"]) == ("failed", 2)
    assert [each["attempt"] for each in shown["attempts"]] == [1]
    assert shown["attempts"][0]["error"]["type"] == "ValueError"


def test_show_run_between_attempts_prints_wake_time(rota: Rota, worker: Program) -> None:
    run = start(rota, "tomorrow")
    eventually(lambda: rota("show", run, "--json").json()["state"] == "sleeping")

    shown = rota("show", run).out

    assert "attempt 1 of it failed with RuntimeError; the next one waits" in shown
    assert "RuntimeError: not today" in shown


def test_show_queued_run_without_worker_prints_reason(rota: Rota) -> None:
    run = start(rota, "echo", "value=1", "--queue", "nobody")

    assert "it is queued, and no worker serves queue 'nobody'" in rota("show", run).out


def test_show_running_run_names_its_worker(rota: Rota, worker: Program, tmp_path: Path) -> None:
    run = start(rota, "wait_for", f"file={tmp_path / 'go'}")
    eventually((tmp_path / "go.began").exists)

    shown = rota("show", run).out

    (tmp_path / "go").touch()
    assert f"run {run} running" in shown
    assert f"process {worker.pid}" in shown


# Actions


def test_cancel_queued_run_can_be_retried(rota: Rota) -> None:
    run = start(rota, "echo", "value=1", "--queue", "nobody")

    assert rota("cancel", run).out == f"run {run} is cancelled\n"
    assert rota("show", run, "--json").json()["state"] == "cancelled"
    assert rota("retry", run).out == f"run {run} is queued for a retry\n"
    assert rota("show", run, "--json").json()["state"] == "queued"


def test_cancel_running_run_requests_its_stop(rota: Rota, worker: Program, tmp_path: Path) -> None:
    run = start(rota, "wait_for", f"file={tmp_path / 'never'}")
    eventually((tmp_path / "never.began").exists)

    assert "has been asked to stop" in rota("cancel", run).out
    eventually(lambda: rota("show", run, "--json").json()["state"] == "cancelled")


def test_cancel_finished_run_is_refused(rota: Rota, failed: str) -> None:
    done = rota("cancel", failed)

    assert done.code == NOT_FOUND
    assert done.complaint == f"run {failed} has failed already"


def test_retry_unfinished_run_is_refused(rota: Rota) -> None:
    run = start(rota, "echo", "value=1", "--queue", "nobody")

    done = rota("retry", run)

    assert done.code == FAILED
    assert f"run {run} is queued" in done.complaint


def test_cancel_missing_run_does_not_stop_the_remaining_ones(rota: Rota) -> None:
    run = start(rota, "echo", "value=1", "--queue", "nobody")

    done = rota("cancel", "999999999", run)

    assert done.code == NOT_FOUND
    assert done.out == f"run {run} is cancelled\n"


# Queues


def test_queues_command_jobs_without_worker_print_a_warning(empty_rota: Rota) -> None:
    start(empty_rota, "echo", "value=1")
    start(empty_rota, "echo", "value=2")
    start(empty_rota, "resize", "path=a", "--delay", "1h")

    done = empty_rota("queues")

    heading, line, _, places, warning = done.out.splitlines()
    assert heading.split() == ["queue", "task", "queued", "oldest", "workers"]
    assert line.split()[:3] == ["default", "echo", "2"]
    assert line.endswith("none")
    assert places == "0 running, 1 sleeping"
    assert "knows task 'echo': 2 jobs wait until one is started" in warning


def test_queues_command_counts_workers_that_can_claim(empty_rota: Rota, empty_dsn: str) -> None:
    start(empty_rota, "echo", "value=1")
    with psycopg.connect(empty_dsn) as connection:
        connection.execute(
            "insert into rota.workers (host, pid, version, queues, tasks, capacity) "
            "values ('h', 1, '0', '{default}', '{echo}', 1)"
        )

    [line] = empty_rota("queues", "--json").json()["queues"]

    assert (line["queued"], line["workers"]) == (1, 1)
    assert line["oldest"] >= 0
    assert "no worker" not in empty_rota("queues").out


# Schema and global options


def test_runs_command_schema_option_selects_the_schema(empty_rota: Rota) -> None:
    assert empty_rota("db", "migrate", "--schema", "second").code == 0
    run = start(empty_rota, "--schema", "second", "echo", "value=1")

    assert [
        each["run"] for each in empty_rota("runs", "--schema", "second", "--json").json()["runs"]
    ] == [run]
    assert empty_rota("runs", *SHOP, "--json").json()["runs"] == []


def test_global_options_work_before_and_after_the_command(empty_rota: Rota, empty_dsn: str) -> None:
    start(empty_rota, "echo", "value=1")

    before = empty_rota("--dsn", empty_dsn, "--schema", "rota", "runs", "--json")
    after = empty_rota("--dsn", "postgresql://127.0.0.1:1/x", "runs", "--dsn", empty_dsn, "--json")

    assert before.json() == after.json() != []


# Many runs


def test_cancel_and_retry_all_with_filters_change_matching_runs(empty_rota: Rota) -> None:
    meant = [start(empty_rota, "echo", f"value={each}", "--queue", "meant") for each in range(3)]
    [other] = [start(empty_rota, "echo", "value=9", "--queue", "other")]

    asked = empty_rota("cancel", "--all", "--queue", "meant")
    assert (asked.code, asked.out) == (NOT_FOUND, "")
    assert "3 runs would be affected; repeat the command with --yes" in asked.err
    done = empty_rota("cancel", "--all", "--queue", "meant", "--yes")
    assert (done.code, done.out) == (0, "3 runs are cancelled\n")

    def states() -> dict[str, str]:
        return {
            str(each["run"]): each["state"] for each in empty_rota("runs", "--json").json()["runs"]
        }

    assert states() == {**dict.fromkeys(meant, "cancelled"), other: "queued"}
    again = empty_rota("retry", "--all", "--state", "cancelled", "--yes")
    assert (again.code, again.out) == (0, "3 runs are queued for a retry\n")
    assert set(states().values()) == {"queued"}
    none = empty_rota("retry", "--all", "--yes")
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
def test_cancel_and_retry_ambiguous_selection_is_refused(
    empty_rota: Rota, words: tuple[str, ...], said: str
) -> None:
    run = start(empty_rota, "echo", "value=1")
    done = empty_rota(*words)
    assert done.code == 2
    assert said in done.err
    assert empty_rota("show", run, "--json").json()["state"] == "queued"


def test_runs_command_finds_by_key_time_and_text(empty_rota: Rota) -> None:
    one = start(empty_rota, "echo", 'value="needle"', "--key", "k-1")
    two = start(empty_rota, "echo", "value=2")

    def found(*words: str) -> list[str]:
        return [str(each["run"]) for each in empty_rota("runs", "--json", *words).json()["runs"]]

    assert found("--key", "k-1") == [one]
    assert found("--find", "NEEDLE") == [one]
    assert found("--since", "2020-01-01") == [two, one]
    assert found("--until", "2020-01-01") == []
