"""`rota show` of a flow's run: the graph of its jobs, their details and their child runs."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from msgspec.structs import replace

from rota.cli.show.flow import print_flow
from rota.drawing.label import STATES
from rota.model.explanation import Explanation
from rota.operations.run_detail import FlowDetail
from rota.store.read.runs import ChildRunRow, FlowDetailRow, JobRow
from support.cli_fixtures import Rota
from support.terminal import APPS, Program, Terminal, eventually

MILL = ("-a", "mill:app")
NOW = datetime(2026, 11, 15, tzinfo=UTC)


@pytest.fixture
def rota(rota: Rota, mill_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Rota:
    """`rota` on the database of the flows."""
    monkeypatch.setenv("ROTA_DATABASE_URL", mill_dsn)
    return rota


def start(rota: Rota, *words: str) -> str:
    return rota("start", *MILL, *words).out.splitlines()[0]


def graph(printed: str) -> list[str]:
    """Return the lines of the graph: from below the count of jobs to the next section."""
    [_, below] = re.split(r"\n[\d,]+ jobs?: .*\n\n", printed)
    return re.split(r"\n\nerror of |\n\ncalled |\n\n\d+ (?:more|jobs?) ", below)[0].splitlines()


@pytest.fixture(scope="session")
def gallery(mill_dsn: str, mill: Program) -> str:
    """Run with jobs that have started child runs."""
    words = ("start", *MILL, "gallery", "numbers=[10, 20]", "--wait")
    return Terminal(mill_dsn).run(*words).out.splitlines()[0]


# Job lines


def test_show_flow_failed_run_prints_states_and_errors_of_jobs(
    rota: Rota, failed_flow: str
) -> None:
    shown = rota("show", failed_flow).out

    lines = {line.split(" #")[0].split()[-1]: line for line in graph(shown)}
    assert shown.startswith(f"run {failed_flow} failed\n")
    assert 'input    {"day": "monday", "broken": true}' in shown
    assert "6 jobs: 3 succeeded, 1 failed, 2 skipped" in shown
    assert re.search(r"✓ extract #\d+ +succeeded  [\d.]+ [µm]s$", lines["extract"])
    assert re.search(
        r"✗ clean #\d+ +failed +.*, attempt 2  ValueError: cannot read", lines["clean"]
    )
    assert lines["report"].endswith("skipped    a job it waits for failed")
    assert "succeeded" in lines["alert"]
    assert "error of clean #" in shown
    assert "Traceback (most recent call last):" in shown
    assert "\x1b" not in shown


def test_show_flow_succeeded_run_prints_result_and_skipped_jobs(rota: Rota, mill: Program) -> None:
    run = rota("start", *MILL, "etl", "day=monday", "--wait").out.splitlines()[0]

    shown = rota("show", run).out

    assert 'result   {"complain": null}' in shown
    assert re.search(r"complain #\d+ +skipped +on purpose", shown)
    assert re.search(r"alert #\d+ +skipped +not needed", shown)


def test_show_flow_waiting_job_names_the_running_job(
    rota: Rota, mill: Program, tmp_path: Path
) -> None:
    run = start(rota, "gate", f"file={tmp_path / 'go'}")
    eventually((tmp_path / "go.began").exists)

    shown = rota("show", run).out
    waiting = rota("show", re.findall(r"through #(\d+)", shown)[0]).out

    (tmp_path / "go").touch()
    assert "2 jobs: 1 running, 1 waiting" in shown
    assert re.search(r"◐ hold #\d+ +running  for \d+ s\n○ through #\d+  waiting\n", shown)
    assert re.search(r"reason +job \d+ \(gate.hold\) runs on worker \d+", waiting)
    assert re.search(r"also +it waits for gate.hold \(job \d+, running\)", waiting)


def test_show_flow_queued_job_without_worker_prints_reason(rota: Rota, mill: Program) -> None:
    shown = rota("show", start(rota, "lonely")).out

    assert re.search(r"first #\d+ +queued +for \d+ s\n", shown)
    assert re.search(r"reason +job \d+ \(lonely.first\) is queued, and no worker serves", shown)
    assert "remedy   `rota worker MODULE:APP -q nobody`" in shown


def test_show_job_of_flow_names_its_run(rota: Rota, failed_flow: str) -> None:
    jobs = rota("show", failed_flow, "--json").json()["jobs"]
    ids = {each["task"].removeprefix("etl."): str(each["job"]) for each in jobs}

    shown = rota("show", ids["clean"]).out
    document = rota("show", ids["clean"], "--json").json()

    assert shown.startswith(f"job {ids['clean']} failed\n")
    assert f"part of  run {failed_flow}, of flow etl; see `rota show {failed_flow}`" in shown
    assert (document["job"], document["run"]) == (ids["clean"], failed_flow)
    assert re.search(r"reason +a job it waits for failed", rota("show", ids["report"]).out)


# Child runs


def test_show_flow_child_runs_are_listed_and_linked(rota: Rota, gallery: str) -> None:
    shown = rota("show", gallery, "--json").json()
    halves, inner = (each["job"] for each in shown["jobs"])
    calls = next(each for each in shown["children"] if each["parent"] == halves)
    flow = next(each for each in shown["children"] if each["flow"] == "etl")

    text = rota("show", gallery).out
    of_calls = rota("show", str(calls["run"])).out

    assert re.search(rf"{calls['run']} +{halves} +- +2 +succeeded", text)
    assert re.search(rf"{flow['run']} +{inner} +etl +6 +succeeded", text)
    assert f"child runs of  job {halves}, gallery.halves, a part of run {gallery}" in of_calls
    assert len(re.findall(r"^[├╰]─+✓ half #\d+ +succeeded", of_calls, re.MULTILINE)) == 2
    assert f"started by  job {inner}, gallery.inner" in rota("show", str(flow["run"])).out
    assert re.search(rf"{calls['run']} +{halves} +- +2", rota("show", str(halves)).out)


# JSON


def test_show_flow_json_has_jobs_attempts_and_results(rota: Rota, failed_flow: str) -> None:
    shown = rota("show", failed_flow, "--json").json()

    jobs = {each["task"]: each for each in shown["jobs"]}
    assert (shown["run"], shown["name"], shown["is_flow"]) == (failed_flow, "etl", True)
    assert (shown["state"], shown["input"]) == ("failed", {"day": "monday", "broken": True})
    extract, clean, report = (jobs[f"etl.{name}"] for name in ("extract", "clean", "report"))
    assert (extract["input"], extract["result"]) == ({"day": "monday"}, ["monday-1", "monday-2"])
    assert clean["job"] in extract["successors"]
    assert clean["input_jobs"] == [extract["job"]]
    assert (clean["error"]["type"], clean["attempt"]) == ("ValueError", 2)
    assert [each["attempt"] for each in clean["attempts"]] == [1]
    assert clean["attempts"][0]["error"]["type"] == "ValueError"
    assert (report["state"], report["result"], report["rule"]) == ("skipped", None, "all_succeeded")
    assert shown["children"] == []
    assert datetime.fromisoformat(extract["finished"]).utcoffset() is not None


# Output devices


def test_show_flow_ascii_terminal_prints_ascii(mill_dsn: str, failed_flow: str) -> None:
    done = Terminal(mill_dsn).run("show", failed_flow, PYTHONIOENCODING="ascii")

    assert done.code == 0
    assert done.out.isascii()
    assert re.search(r"\+-x clean #\d+ +failed +[\d.]+ [mu]s, attempt 2", done.out)
    assert "\\xb5" not in done.out


@pytest.mark.parametrize("width", [40, 80])
def test_show_flow_graph_fits_the_terminal(mill_dsn: str, failed_flow: str, width: int) -> None:
    printed = on_terminal(mill_dsn, width, "show", failed_flow)

    lines = graph(printed)
    assert len(lines) == 6
    assert all(len(line) <= width for line in lines)
    assert any(line.endswith("…") for line in lines)


def on_terminal(dsn: str, width: int, *words: str) -> str:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environment = {**Terminal(dsn).environment, "TERM": "xterm-256color", "PYTHONUTF8": "1"}
    environment.pop("COLUMNS", None)
    subprocess.run(
        [sys.executable, "-m", "rota", *words],
        stdin=theirs,
        stdout=theirs,
        env=environment,
        cwd=APPS,
        check=True,
    )
    os.close(theirs)
    printed = b""
    try:
        while chunk := os.read(ours, 65536):
            printed += chunk
    except OSError:
        pass  # Linux reports that the other end is closed
    os.close(ours)
    return re.sub(r"\x1b\[[\d;]*m", "", printed.decode()).replace("\r\n", "\n")


# Any size


@some.composite
def runs(draw: some.DrawFn) -> list[JobRow]:
    """Jobs with any dependencies, in any states."""
    many = draw(some.integers(1, 25))
    children: list[list[int]] = [[] for _ in range(many)]
    for number in range(1, many):
        above = draw(some.lists(some.integers(0, number - 1), unique=True, max_size=4))
        for each in above:
            children[each].append(101 + number)
    states = draw(some.lists(some.sampled_from(STATES), min_size=many, max_size=many))
    return [job(101 + n, states[n], children[n]) for n in range(many)]


def job(id: int, state: str, children: list[int]) -> JobRow:
    ended = state in ("succeeded", "failed", "cancelled", "expired", "skipped")
    error = b'{"type": "ValueError", "message": "no"}' if state == "failed" else None
    return JobRow(
        job=id,
        task="etl.part",
        queue="default",
        state=state,
        attempt=1,
        worker=None,
        since=NOW,
        rule="all_succeeded",
        successors=children,
        input_jobs=[],
        finished=NOW if ended else None,
        seconds=0.25 if ended else None,
        error=error,
        wakes=None,
        awaits=None,
        done=None,
        total=None,
        args=None,
        result=None,
    )


def printed(jobs: list[JobRow], kept: int | None = None, called: Sequence[ChildRunRow] = ()) -> str:
    run = FlowDetailRow(1, "etl", "running", 1, NOW, NOW, None, None, None, b"{}", None, len(jobs))
    with redirect_stdout(io.StringIO()) as out:
        print_flow(
            FlowDetail(run, jobs, [], list(called), [], None, None),
            Explanation(
                id=1,
                run=1,
                name="etl",
                is_flow=True,
                status="running",
                reasons=[],
                omitted_jobs=0,
                now=NOW,
            ),
            kept,
        )
    return out.getvalue()


@settings(deadline=None, max_examples=60)
@given(runs())
def test_show_flow_every_job_has_one_line_with_its_state(jobs: list[JobRow]) -> None:
    lines = [line for line in graph(printed(jobs, kept=None)) if line]

    found = [re.findall(r"^[^#]*#(\d+).*?(\w+)", line.split("←")[0])[0] for line in lines]
    assert sorted(int(id) for id, _ in found) == [each.job for each in jobs]
    for line in lines:
        id = int(re.findall(r"#(\d+)", line)[0])
        assert jobs[id - 101].state in line


def test_show_flow_queued_time_counts_from_last_predecessor() -> None:
    before = replace(job(101, "succeeded", [102]), finished=NOW - timedelta(seconds=5))
    ready = replace(job(102, "queued", []), since=NOW - timedelta(hours=1))

    assert "queued     for 5 s" in printed([before, ready])


def test_show_flow_job_waiting_for_child_run_names_the_run() -> None:
    called = [ChildRunRow(7, 101, "", "succeeded", 3), ChildRunRow(8, 101, "etl", "running", 6)]

    shown = printed([job(101, "running", [])], called=called)

    assert "running  for 0 s, waits for run 8\n" in shown


def test_show_flow_ten_thousand_jobs_are_folded_with_failures_shown() -> None:
    parts = [job(n, "failed" if n % 1000 == 0 else "succeeded", [10_000]) for n in range(2, 10_000)]
    jobs = [job(1, "succeeded", [each.job for each in parts]), *parts, job(10_000, "waiting", [])]

    shown = printed(jobs, kept=8)

    assert "10,000 jobs: 9,990 succeeded, 9 failed, 1 waiting" in shown
    assert len(graph(shown)) == 11
    assert sum("failed" in line for line in graph(shown)) == 9
    assert "7 more have failed: `rota show 3000`" in shown
    assert shown.count("error of part") == 2
