"""`rota top`: figures change with the load, the display fits the terminal, and a key ends it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from rota.cli.top import command
from rota.cli.top.snapshot import RATE_WINDOW_SECONDS, QueueSnapshot, ThroughputWindow, TopSnapshot
from rota.cli.top.view import TopView
from rota.store.metrics import FleetTotals
from rota.store.read.coordination import AlertRow
from rota.store.read.live import MinuteRateRow
from rota.store.read.runs import RunRow, WorkerDetailRow
from support.cli_fixtures import Rota
from support.terminal import Program, Terminal, eventually

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


def test_top_once_lists_queues_and_workers(rota: Rota, worker: Program) -> None:
    done = rota("top", "--once")

    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("rota top  20")
    assert "1 worker · " in lines[1]
    assert any(line.split()[:2] == ["queue", "queued"] for line in lines)
    assert any("active" in line and f"{worker.pid}" in line for line in lines)
    assert all(line == line.rstrip() for line in lines)


def test_top_once_json_prints_one_document(rota: Rota, worker: Program) -> None:
    document = rota("top", "--once", "--json").json()

    assert sorted(document) == ["alerts", "at", "queues", "runs", "totals", "workers"]
    [there] = document["workers"]
    assert there["pid"] == worker.pid
    assert {each["queue"] for each in document["queues"]} >= set(there["queues"])


def test_top_json_prints_a_document_per_interval(terminal: Terminal) -> None:
    with terminal.program("top", "--json", "--interval", "0.2") as top:
        assert top._process.stdout
        first, second = (top._process.stdout.readline() for _ in range(2))

        top.tell(signal.SIGTERM)

        assert top.ended().code == 0
    assert first.startswith('{"at":')
    assert first != second


@contextmanager
def run_in_terminal(
    dsn: str, said: Path, *words: str
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run the command in a terminal of its own; yield the process and our end of the terminal."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    with open(said, "wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "rota", "top", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=errors,
            env={**Terminal(dsn).environment, "TERM": "xterm-256color"},
            start_new_session=True,
        )
    before = termios.tcgetattr(theirs)
    try:
        yield process, ours
        assert termios.tcgetattr(theirs) == before  # terminal modes are restored
        process.wait(60)
        with open(said, "rb") as file:
            assert file.read() == b""
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 100_000)
    except BlockingIOError:
        return b""


@pytest.mark.parametrize("how", ["q", signal.SIGTERM], ids=["a key", "a signal"])
def test_top_key_or_signal_quits_and_restores_the_terminal(
    terminal: Terminal, tmp_path: Path, how: str | signal.Signals
) -> None:
    dsn = terminal.environment["ROTA_DATABASE_URL"]
    with run_in_terminal(dsn, tmp_path / "said", "--interval", "0.2") as (process, ours):
        printed, times = b"", 2

        def seen() -> bool:
            nonlocal printed
            printed += read(ours)
            return printed.count(b"q quits") >= times

        eventually(seen)
        # It continues after an arrow key, and after F2, which a terminal sends as ESC O Q.
        os.write(ours, b"\x1b[A\x1bOQ")
        times = printed.count(b"q quits") + 2
        eventually(seen)
        if isinstance(how, str):
            os.write(ours, how.encode())
        else:
            process.send_signal(how)
        deadline = time.monotonic() + 60
        while process.poll() is None:
            printed += read(ours)
            assert time.monotonic() < deadline
            time.sleep(0.01)
        printed += read(ours)

    assert process.returncode == 0
    assert b"\x1b[?1049h" in printed
    assert printed.rindex(b"\x1b[?1049l") > printed.rindex(b"\x1b[?1049h")


@pytest.mark.parametrize("pressed", [b"q", b"Q", b"\x1b", b"\x03", b"\x04", b"\x1b[Aq", b"", b"jq"])
def test_top_quit_keys_are_recognised(pressed: bytes) -> None:
    assert command.is_quit_key(pressed)


@pytest.mark.parametrize(
    "pressed", [b"\x1b[A", b"\x1bOQ", b"\x1b[1;5D", b"\x1b[15~", b"\x1bq", b"j", b"\x1b[A\x1b[B"]
)
def test_top_other_keys_do_not_quit(pressed: bytes) -> None:
    assert not command.is_quit_key(pressed)


# Rates from several samples


def line(queue: str, minute: int, ended: int, waits: int = 0, waited: float = 0.0) -> MinuteRateRow:
    return MinuteRateRow(queue, minute, ended, 0, 0, waits, waited)


def test_throughput_window_rate_is_the_difference_of_two_samples() -> None:
    paces = ThroughputWindow()
    paces.add(1000.0, [line("default", 960, 400)])
    paces.add(1010.0, [line("default", 960, 450, 50, 5.0)])

    sums, seconds = paces.recent("default")

    assert (sums.ended, seconds) == (50, 10.0)
    assert sums.wait_seconds / sums.wait_count == 0.1
    assert paces.recent("other")[0].ended == 0


def test_throughput_window_old_samples_are_dropped() -> None:
    paces = ThroughputWindow()
    for second in range(100):
        paces.add(1000.0 + second, [line("default", 960, 7 * second)])

    sums, seconds = paces.recent("default")

    assert seconds == RATE_WINDOW_SECONDS
    assert sums.ended / seconds == 7


def test_throughput_window_minute_missing_in_new_sample_stays_counted() -> None:
    paces = ThroughputWindow()
    paces.add(1070.0, [line("default", 960, 600), line("default", 1020, 100)])
    paces.add(1082.0, [line("default", 1020, 200), line("default", 1080, 20)])

    assert paces.recent("default")[0].ended == 120


def test_throughput_window_steady_load_has_a_steady_rate() -> None:
    paces, pace, began = ThroughputWindow(), 100, 960
    speeds = []
    for now in range(began + 60, began + 14 * 60, 2):
        begun = range(began, now + 1, 60)[
            -3:
        ]  # this minute and the two before it, as the query returns
        told = [line("default", minute, pace * min(now - minute, 60)) for minute in begun]
        paces.add(float(now), told)
        sums, seconds = paces.recent("default")
        speeds.append(sums.ended / seconds)

    assert set(speeds) == {pace}


def test_throughput_window_first_sample_covers_its_minutes() -> None:
    paces = ThroughputWindow()
    paces.add(1060.0, [line("default", 960, 150), line("default", 1020, 50)])

    assert paces.recent("default")[1] == 100
    assert paces.recent("default")[0].ended == 200


# Display


def top_snapshot(many: int) -> TopSnapshot:
    worker = WorkerDetailRow(
        worker=1,
        state="active",
        host="a-host-with-a-long-name.example.org",
        pid=4194304,
        version="4f2c9e1",
        rota_version="0.1",
        queues=["default"],
        tasks=["hello"],
        capacity=100,
        running=42,
        lag=0.3,
        metadata=b"{}",
        started=NOW - timedelta(hours=1),
        last_beat=NOW,
        drain_requested=None,
        ended=None,
        charged_jobs=[],
    )
    run = RunRow(
        run=2**63 - 1,
        name="a.rather.long.name.of.a.task",
        is_flow=False,
        queue="default",
        state="running",
        attempt=1,
        worker=7,
        since=NOW,
        created=NOW,
        key=None,
        wakes=None,
        awaits=None,
        done=3.0,
        total=10.0,
        note="half-way through [bold]the books[/bold]",
    )
    alert = AlertRow(
        id=1,
        kind="worker_dead",
        subject="7",
        message="worker 7 is dead",
        raised=NOW - timedelta(minutes=3),
        cleared=None,
        host="host",
        pid=1,
        acknowledged_until=None,
        acknowledged_by=None,
        closed_by=None,
    )
    fleet = FleetTotals(
        5, 3, 1, {"active": many, "dead": 1}, 42, 100, {}, None, 0.0, {"worker_dead": many}, []
    )
    queues = [
        QueueSnapshot(f"queue-{number}", number, True, 61.0, 1, 1234.5, 0.2, 0.0, False, 0.012)
        for number in range(many)
    ]
    return TopSnapshot(
        NOW, fleet, queues, [worker] * many, [run] * many, [alert] * min(many, 10), 20.0
    )


def drawn(sight: TopSnapshot, width: int, height: int, trouble: str = "") -> list[str]:
    out = StringIO()
    console = Console(file=out, width=width, height=height, color_system=None, highlight=False)
    console.print(TopView(sight, trouble))
    return out.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 50), (60, 20)])
@pytest.mark.parametrize("many", [0, 1, 3, 200])
def test_top_view_any_amount_fits_the_terminal(width: int, height: int, many: int) -> None:
    lines = drawn(top_snapshot(many), width, height)

    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_top_view_overflow_is_counted_and_fullest_queues_are_shown() -> None:
    text = "\n".join(drawn(top_snapshot(200), 80, 40))

    assert "queue-199" in text
    assert "queue-0 " not in text
    for what in ("queues", "workers", "runs", "alerts"):
        assert f"more {what}" in text


def test_top_view_queue_without_worker_is_marked() -> None:
    queue = QueueSnapshot("lonely", 5, False, 61.0, 0, 0.0, 0.0, 0.0, False, None)
    lonely = TopSnapshot(NOW, top_snapshot(0).totals, [queue], [], [], [], 20.0)

    [row] = [each for each in drawn(lonely, 80, 24) if "lonely" in each]

    assert row.split() == ["lonely", "~5", "1", "min", "1", "s", "0", "0", "none"]


def test_top_view_paused_queue_is_marked() -> None:
    queue = QueueSnapshot("held", 5, True, 1.0, 3, 0.0, 0.0, 0.0, True, None)
    held = TopSnapshot(NOW, top_snapshot(0).totals, [queue], [], [], [], 20.0)

    assert next(each for each in drawn(held, 80, 24) if "held" in each).endswith("paused")


def test_top_view_run_text_is_not_markup() -> None:
    assert "[bold]the books[/bold]" in "\n".join(drawn(top_snapshot(1), 120, 40))


def test_top_view_database_outage_is_shown_in_first_line() -> None:
    assert "the database is away" in drawn(top_snapshot(1), 80, 24, "the database is away")[0]
