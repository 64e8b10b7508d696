"""`rota demo`, and the example it leads to: they work as they are, and leave nothing behind."""

from __future__ import annotations

import os
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from .terminal import Done, Program, Terminal, children_of, eventually, is_alive

HELLO = Path(__file__).parents[2] / "examples" / "hello.py"
LONG = bool(os.environ.get("ROTA_TEST_LONG"))


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory with a short name that other users can enter: root cannot run PostgreSQL itself."""
    base = Path(tempfile.mkdtemp(prefix="rota-cli-", dir="/tmp")).resolve()
    base.chmod(0o755)
    yield base
    shutil.rmtree(base, ignore_errors=True)  # of one that was left behind, files may just be going


def processes(directory: Path) -> list[str]:
    listed = subprocess.run(
        ["ps", "-axww", "-o", "args="], capture_output=True, text=True, check=True
    )
    return [line for line in listed.stdout.splitlines() if str(directory) in line]


def nothing_is_left(home: Path) -> None:
    eventually(lambda: not processes(home))
    assert list(home.iterdir()) == []


def read(url: str) -> tuple[int, str]:
    """Open a link as a browser does: with cookies."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(url, timeout=10) as answer:
        return answer.status, answer.read().decode()


class Show(Program):
    """A demo without a terminal, whose lines are read while it runs."""

    def line(self, pattern: str) -> re.Match[str]:
        assert self._process.stdout
        others = ""
        for line in self._process.stdout:
            if found := re.search(pattern, line):
                return found
            others += line
        ended = self.ended()
        raise AssertionError(f"it never said {pattern!r}, but:\n{others}\n{ended.err}")


@pytest.fixture
def show(home: Path) -> Iterator[Callable[..., Show]]:
    shown: list[Show] = []

    def begin(*words: str) -> Show:
        environment = {**Terminal(None).environment, "TMPDIR": str(home)}
        shown.append(Show(("demo", *words), environment, home))
        return shown[-1]

    yield begin
    for each in shown:
        each.close()


@pytest.mark.slow
def test_a_demo_kills_a_worker_recovers_says_so_in_figures_and_leaves_nothing(
    show: Callable[..., Show], home: Path
) -> None:
    demo = show("--seconds", "5")
    address, key = demo.line(r"dashboard +(http://127\.0\.0\.1:\d+/)\?key=(\S{22})").groups()
    page = demo.line(rf"a running flow +({address}runs/\d+\?key={key})")[1]
    workers = children_of(demo.pid)
    assert len(workers) == 2

    status, text = read(page)
    assert status == 200
    assert "<svg" in text
    assert "extract_payments" in text

    killed, jobs = demo.line(r"worker (\d+) was killed, with ([\d,]+) jobs? in its hands").groups()
    assert [is_alive(pid) for pid in workers].count(True) == 1
    demo.line(rf"worker {killed} was killed — its {jobs} jobs? run again on worker \d")
    demo.line(r"worker \d+ was started in its place")
    assert len(children_of(demo.pid)) == 2

    ended = demo.ended(60)
    assert (ended.code, ended.err) == (0, "")
    figures = {words[0]: words[1:] for line in ended.out.splitlines() if (words := line.split())}
    assert {"jobs", "speed", "latency", "retries", "flows", "killed", "recovered", "ticks"} <= set(
        figures
    ), ended.out
    assert "none lost" in ended.out
    assert "none of them twice" in ended.out
    assert f"worker {killed}, with {jobs} job" in ended.out
    assert int(figures["jobs"][0].replace(",", "")) >= 2000
    nothing_is_left(home)


def stopped_after(seconds: float, how: signal.Signals, home: Path, *, typed: bool) -> Done:
    """A demo that was told to stop after so long: by a signal, or by Ctrl-C in its terminal."""
    environment = {**Terminal(None).environment, "TMPDIR": str(home), "TERM": "xterm-256color"}
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "rota", "demo", "--seconds", "4", "--no-browser"],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
        # Whose terminal this is: only then does a key that is typed become a signal.
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
            # Again and again: somebody who is in a hurry must not leave anything behind either.
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
    return Done(process.returncode, printed.decode(errors="replace"), said)


SOONEST = 0.0 if LONG else 0.8
"""Seconds. Before that there is often nothing to leave behind yet."""

WAYS = [(signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGHUP, False)]
"""Signals, and whether they are typed."""

MOMENTS = [
    (random.uniform(SOONEST, 7 if LONG else 3.5), how, typed)
    for _ in range(15 if LONG else 1)
    for how, typed in (WAYS if LONG else WAYS[:1])
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
def test_a_demo_can_be_ended_at_any_moment_and_nothing_is_left(
    home: Path, seconds: float, how: signal.Signals, typed: bool
) -> None:
    done = stopped_after(seconds, how, home, typed=typed)

    # A signal that comes while Python itself starts ends it as it ends any program.
    assert done.code in (0, -how, 130) or "KeyboardInterrupt" in done.err, (seconds, done)
    assert done.code == 0 or seconds < 1.5, (seconds, done)
    assert "Traceback" not in done.err or done.code != 0, (seconds, done)
    nothing_is_left(home)


def test_a_demo_that_is_killed_leaves_no_process(show: Callable[..., Show], home: Path) -> None:
    demo = show("--seconds", "30")
    demo.line("a running flow")

    demo.tell(signal.SIGKILL)

    eventually(lambda: not processes(home))


def test_a_demo_brings_its_own_database_and_says_so(home: Path) -> None:
    done = Terminal(None).run("--dsn", "postgresql://elsewhere", "demo", TMPDIR=str(home))

    assert done.code == 2
    assert "brings a database of its own" in done.complaint
    assert list(home.iterdir()) == []


def test_the_smallest_app_greets(home: Path) -> None:
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
