"""Durable functions in `rota show` and `rota runs`: steps, awaited signals and progress."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from typing import Any

import pytest

from support.cli_fixtures import Rota
from support.scale import scale
from support.terminal import Program, Terminal, eventually

BOARD = ("-a", "board:app")


def start(rota: Rota, *words: str) -> str:
    return rota("start", *BOARD, *words).out.splitlines()[0]


def shown(rota: Rota, run: str) -> Any:
    return rota("show", run, "--json").json()


def start_sleeping(rota: Rota, *words: str) -> str:
    """Start a run, and return it once it is suspended."""
    run = start(rota, *words)
    eventually(lambda: shown(rota, run)["state"] == "sleeping")
    return run


@pytest.fixture(scope="session")
def onboarding(board_dsn: str, board: Program) -> str:
    """Run that has reached one entry of each kind, and sleeps for an hour."""
    terminal = Terminal(board_dsn)
    run = terminal.run("start", *BOARD, "onboard", "mail=ada").out.strip()

    def told() -> object:
        document = terminal.run("show", run, "--json").json()
        return document["state"] == "sleeping" and document["done"] and document["logs"]

    eventually(told)
    return run


def run_on_terminal(dsn: str, columns: int, *words: str) -> list[str]:
    ours, theirs = pty.openpty()
    environment = {**Terminal(dsn).environment, "COLUMNS": str(columns), "TERM": "xterm-256color"}
    subprocess.run(
        [sys.executable, "-m", "rota", *words], stdout=theirs, env=environment, check=True
    )
    os.close(theirs)
    printed = os.read(ours, 100_000).decode()
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;]*m", "", printed).splitlines()


def step_table(printed: str) -> list[str]:
    """Return the lines of the steps' table."""
    lines = printed.splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("kind "))
    rest = lines[first + 1 :]
    return rest[: rest.index("")] if "" in rest else rest


# Steps


def test_show_steps_are_in_execution_order(durable: Rota, onboarding: str) -> None:
    table = step_table(durable("show", onboarding).out)

    names = [re.split(r"  +", line)[:2] for line in table]
    assert names[:1] + names[3:] == [
        ["step", "account"],
        ["step", "charge"],
        ["step", "charge no. 2"],
        ["step", "card"],
        ["step", "invoice"],
        ["sleep", names[-1][1]],
    ]
    assert sorted(each[0] for each in names[1:3]) == ["value", "version"]
    assert table[-3].endswith("failed: ValueError: card [bold]declined[/bold] \\x1b[31m 7")
    assert table[-2].endswith('"sent"')
    assert re.search(r"until (\d{4}-\d\d-\d\d )?\d\d:\d\d", table[-1])


def test_show_steps_long_result_is_cut_only_in_the_table(durable: Rota, onboarding: str) -> None:
    [line] = [each for each in step_table(durable("show", onboarding).out) if "account" in each]
    [step] = [each for each in shown(durable, onboarding)["steps"] if each["name"] == "account"]

    assert '{"mail":"ada","filler":"xxx' in line
    assert len(line) < 300
    assert step["result"] == {"mail": "ada", "filler": "x" * 500}


def test_show_steps_json_has_every_field(durable: Rota, onboarding: str) -> None:
    document = shown(durable, onboarding)

    steps = {(each["kind"], each["name"], each["number"]): each for each in document["steps"]}
    card = steps["step", "card", 1]
    assert (card["tries"], card["open"], card["in_main_branch"]) == (1, False, True)
    assert card["error"]["type"] == "ValueError"
    assert card["seconds"] > 0
    assert steps["step", "charge", 2]["result"] == 1
    assert steps["version", "fees", 1]["result"] is True
    assert steps["sleep", "sleep", 1]["until"] == document["wakes"]
    positions = [each["position"] for each in document["steps"]]
    assert positions == sorted(positions, reverse=True)
    assert document["note"] == "a [bold]week\x1b[31m"
    assert document["logs"][-1]["message"] == "begun\nwith two lines"


def test_show_many_steps_and_log_lines_prints_the_last(durable: Rota) -> None:
    run = start(durable, "count", "steps=50", "lines=30", "--wait")
    eventually(lambda: len(shown(durable, run)["logs"]) == 30)

    brief, whole = durable("show", run).out, durable("show", run, "--all").out

    assert len(step_table(brief)) == 41  # 40 steps, and one line for those left out
    assert step_table(brief)[0].startswith("step  one no. 11 ")
    assert "and 10 steps before; --all shows them" in brief
    assert "and 10 lines before; --all shows them" in brief
    assert "  line 9\n" not in brief
    assert len(step_table(whole)) == 50
    assert "line 0\n" in whole
    assert "--all" not in whole


def test_show_job_without_steps_prints_no_step_table(durable: Rota) -> None:
    run = start(durable, "count", "steps=0", "--wait")

    printed = durable("show", run).out

    assert "kind" not in printed
    assert "log" not in printed
    document = shown(durable, run)
    assert (document["steps"], document["signals"], document["logs"]) == ([], [], [])
    assert (document["done"], document["note"]) == (None, None)


# Waiting


def test_show_sleeping_run_prints_wake_time(durable: Rota, onboarding: str) -> None:
    printed = durable("show", onboarding).out

    assert re.search(
        r"reason +it sleeps in ctx.sleep; until .+ \d\d:\d\d:\d\d \S+, in \d+ min", printed
    )


def test_show_run_waiting_for_signal_names_the_signal(durable: Rota) -> None:
    patient = start_sleeping(durable, "answer")
    hurried = start_sleeping(durable, "answer", "timeout=86400")

    first, second = durable("show", patient).out, durable("show", hurried).out

    assert "it waits for signal 'answer', without a timeout" in first
    assert step_table(first)[0].endswith("waits")
    assert re.search(r"it waits for signal 'answer'; until .+, in 23 h 59 min", second)
    assert re.search(r"waits until \d{4}-\d\d-\d\d \d\d:\d\d$", step_table(second)[0])


def test_show_run_with_waiting_branches_lists_all_waits(durable: Rota) -> None:
    run = start_sleeping(durable, "twice")

    printed = durable("show", run).out

    assert re.search(r"it sleeps in ctx.sleep; until ", printed)
    assert "it waits for signal 'right'" in printed


def test_show_failed_step_prints_the_next_attempt(durable: Rota) -> None:
    run = start_sleeping(durable, "stubborn")

    printed = durable("show", run).out

    assert re.search(
        r"reason +step 'knock' of it failed once, last with ValueError; its next try waits; until .*, in",
        printed,
    )
    assert re.search(r"next try .*, after ValueError: card", step_table(printed)[0])


def test_show_timed_out_wait_is_marked(durable: Rota) -> None:
    run = start(durable, "answer", "timeout=0.1", "--wait")

    assert step_table(durable("show", run).out)[0].endswith("did not arrive before the timeout")


def test_show_wait_ended_by_cancel_is_marked(durable: Rota) -> None:
    run = start_sleeping(durable, "answer")
    durable("cancel", run)

    assert step_table(durable("show", run).out)[0].endswith("no longer awaited")


def test_show_sent_signal_payload_is_printed(durable: Rota) -> None:
    run = start(durable, "answer", "--delay", "1h")
    durable("signal", run, "answer", '"[red]\\u001b[2J"')

    printed = durable("show", run).out

    [line] = [each for each in printed.splitlines() if each.startswith("answer ")]
    assert line.endswith('"[red]\\u001b[2J"')


def test_show_run_that_slept_prints_total_duration(durable: Rota) -> None:
    slept = start(durable, "onboard", "mail=b", "pause=0.1")
    eventually(lambda: shown(durable, slept)["awaits"])
    durable("signal", slept, "confirmed", "true")
    eventually(lambda: shown(durable, slept)["state"] == "succeeded")

    assert re.search(r"ended .* ago, .* after its start", durable("show", slept).out)


# Progress, and the log


def test_show_progress_is_a_bar_with_note(durable: Rota, onboarding: str) -> None:
    printed = durable("show", onboarding).out

    assert re.search(
        r"progress +█{10}░{10} 50 %, 2 of 4, \d+ \S+ ago: a \[bold\]week\\x1b\[31m", printed
    )


def test_show_log_is_printed_line_by_line(durable: Rota, onboarding: str) -> None:
    lines = durable("show", onboarding).out.splitlines()

    log = lines[lines.index("log") + 1 :]
    assert re.fullmatch(r"  .*\d\d:\d\d(:\d\d)?  begun", log[0])
    assert re.fullmatch(r" +with two lines", log[1])
    assert log[2].endswith("card [bold]declined[/bold] \\x1b[31m 7")
    assert len(log) == 3


def test_runs_command_shows_awaited_signal_and_progress(durable: Rota, onboarding: str) -> None:
    waits = start_sleeping(durable, "answer", "name=approved")

    lines = {line.split()[0]: line for line in durable("runs", "--limit", "1000").out.splitlines()}

    assert re.search(r"until .*, 50 %: a \[bold\]week\\x1b\[31m$", lines[onboarding])
    assert lines[waits].endswith("  waits for signal 'approved'")
    [listed] = [
        each
        for each in durable("runs", "--limit", "1000", "--json").json()["runs"]
        if str(each["run"]) == onboarding
    ]
    assert (listed["done"], listed["total"], listed["awaits"]) == (2.0, 4.0, None)


def test_runs_and_show_finished_run_print_no_progress(durable: Rota) -> None:
    run = start(durable, "count", "steps=1", "--wait")
    eventually(lambda: shown(durable, run)["done"] is not None)

    [heading, *_] = durable("runs", "--task", "count").out.splitlines()

    assert heading.split() == ["run", "task", "queue", "state", "attempt", "age"]
    assert "progress" not in durable("show", run).out


# Flows


def test_graph_command_marks_sleep_and_signal_nodes(durable: Rota) -> None:
    drawn = durable("graph", "order", *BOARD).out

    assert "cool  sleeps for 30 days\n" in drawn
    assert "approval  waits for signal 'approval'\n" in drawn


def test_show_flow_sleeping_jobs_print_wake_time_and_signal(durable: Rota) -> None:
    run = start(durable, "order", "item=book")
    eventually(
        lambda: [each["state"] for each in shown(durable, run)["jobs"]].count("sleeping") == 2
    )

    printed = durable("show", run).out

    assert re.search(r"cool #\d+ +sleeping +for \d+ s, until \d{4}-", printed)
    assert re.search(
        r"approval #\d+ +sleeping +for \d+ s, waits for signal 'approval', until", printed
    )


# Terminals


@pytest.mark.parametrize("columns", scale([40, 100], [40, 60, 100]))
def test_show_step_table_fits_the_terminal(
    durable: Rota, board_dsn: str, onboarding: str, columns: int
) -> None:
    table = step_table("\n".join(run_on_terminal(board_dsn, columns, "show", onboarding)))

    assert all(len(line) <= columns for line in table)
    assert len(table) == 8
    assert any(line.startswith("step ") for line in table)
