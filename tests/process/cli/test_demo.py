"""`rota demo` and the example it points to: both work unchanged and leave nothing behind."""

from __future__ import annotations

import os
import pty
import random
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from support.demo_program import DemoProgram, processes
from support.places import ROOT
from support.scale import scale
from support.terminal import CommandResult, Terminal, children_of, eventually, is_alive

HELLO = ROOT / "examples" / "hello.py"


def assert_nothing_left(home: Path) -> None:
    eventually(lambda: not processes(home))
    assert list(home.iterdir()) == []


def read(url: str) -> tuple[int, str]:
    """Open a link as a browser does: with cookies."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(url, timeout=60) as answer:
        return answer.status, answer.read().decode()


@pytest.mark.slow
def test_demo_kills_worker_recovers_and_leaves_nothing_behind(
    start_demo: Callable[..., DemoProgram], home: Path
) -> None:
    demo = start_demo("--seconds", "5")
    demo.line("starting a PostgreSQL of its own …")
    demo.line("starting two workers …")
    address, key = demo.line(r"dashboard +(http://127\.0\.0\.1:\d+/)\?key=(\S{22})").groups()
    page = demo.line(rf"a running flow +({address}runs/\d+\?key={key})")[1]
    workers = children_of(demo.pid)
    assert len(workers) == 2

    status, text = read(page)
    assert status == 200
    assert "<svg" in text
    assert "extract_payments" in text

    killed, jobs = demo.line(r"worker (\d+) was killed while it held ([\d,]+) jobs?").groups()
    assert [is_alive(pid) for pid in workers].count(True) == 1
    demo.line(rf"worker {killed} was killed — its {jobs} jobs? run again on worker \d")
    demo.line(r"worker \d+ replaces it")
    assert len(children_of(demo.pid)) == 2

    ended = demo.ended(60)
    assert (ended.code, ended.err) == (0, "")
    figures = {words[0]: words[1:] for line in ended.out.splitlines() if (words := line.split())}
    assert {"jobs", "speed", "latency", "retries", "flows", "killed", "recovered", "ticks"} <= set(
        figures
    ), ended.out
    assert "all succeeded" in ended.out
    assert re.search(r"median of \d+ waves? .* on \d+ cores? with PostgreSQL \d+", ended.out)
    assert "none of them twice" in ended.out
    assert f"worker {killed}, with {jobs} job" in ended.out
    assert int(figures["jobs"][0].replace(",", "")) >= 2000
    assert_nothing_left(home)


@pytest.mark.slow
def test_demo_keep_runs_until_signal_and_leaves_nothing_behind(
    start_demo: Callable[..., DemoProgram], home: Path
) -> None:
    demo = start_demo("--seconds", "2", "--keep")
    demo.line("the database, the workers and the dashboard keep running until Ctrl-C")
    page = demo.line(r"(http://127\.0\.0\.1:\d+/\?key=\S{22})")[1]

    assert len(children_of(demo.pid)) == 2
    assert read(page)[0] == 200

    demo.tell(signal.SIGINT)
    ended = demo.ended(60)
    assert (ended.code, ended.err) == (0, "")
    assert_nothing_left(home)


def run_and_stop_demo(
    seconds: float, how: signal.Signals, home: Path, *, typed: bool
) -> CommandResult:
    """Run a demo and stop it after `seconds`: by a signal, or by Ctrl-C in its terminal."""
    environment = {**Terminal(None).environment, "TMPDIR": str(home), "TERM": "xterm-256color"}
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "rota", "demo", "--seconds", "4", "--no-browser"],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
        # Ctrl-C becomes a signal only if this is the controlling terminal of the process.
        preexec_fn=lambda: os.login_tty(theirs) if typed else None,
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    printed = b""
    deadline = time.monotonic() + seconds
    told = 0
    while process.poll() is None:
        with suppress(OSError):
            printed += os.read(ours, 100_000)
        if time.monotonic() >= deadline and told < 5:
            # Repeated: pressing Ctrl-C again must not leave anything behind either.
            told += 1
            deadline += 0.1
            if typed:
                os.write(ours, b"\x03")
            else:
                process.send_signal(how)
        assert time.monotonic() < deadline + 40
        time.sleep(0.01)
    assert process.stderr
    said = process.stderr.read().decode()
    process.stderr.close()
    os.close(ours)
    return CommandResult(process.returncode, printed.decode(errors="replace"), said)


SOONEST = scale(0.8, 0.0)
"""Seconds. Before that the demo has often not created anything."""

WAYS = [(signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGHUP, False)]
"""Signal, and True if it is typed in the terminal."""

MOMENTS = [
    (random.uniform(SOONEST, scale(3.5, 7)), how, typed)
    for _ in range(scale(1, 15))
    for how, typed in (scale(WAYS[:1], WAYS))
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "how", "typed"),
    MOMENTS,
    ids=[
        f"{how.name}{'-typed' if typed else ''}-{number}"
        for number, (_, how, typed) in enumerate(MOMENTS)
    ],
)
def test_demo_stopped_at_any_time_leaves_nothing_behind(
    home: Path, seconds: float, how: signal.Signals, typed: bool
) -> None:
    done = run_and_stop_demo(seconds, how, home, typed=typed)

    # A signal that arrives while Python itself starts ends the process as any other program.
    assert done.code in (0, -how, 130) or "KeyboardInterrupt" in done.err, (seconds, done)
    assert done.code == 0 or "starting a PostgreSQL" not in done.out, (seconds, done)
    assert "Traceback" not in done.err or done.code != 0, (seconds, done)
    assert_nothing_left(home)


def test_demo_with_dsn_option_is_refused(home: Path) -> None:
    done = Terminal(None).run("--dsn", "postgresql://elsewhere", "demo", TMPDIR=str(home))

    assert done.code == 2
    assert "brings a database of its own" in done.complaint
    assert list(home.iterdir()) == []


def test_hello_example_prints_its_results(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(HELLO)],
        env={**os.environ, "ROTA_LOCAL_DIR": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "Hello, Ada!",
        "Hello, Grace!",
        "Hello, Katherine!",
        "1 + 2 + 3 = 6",
    ]
    eventually(lambda: not processes(home))
