"""The tutorial, followed step by step: its programs, its commands, and the worker that is killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.doc_pages import text
from support.places import DOCS, ROOT

PAGE = DOCS / "tutorial.md"
SAID = text(PAGE)
SOON = "asyncio.sleep(1 if 'ctx' in locals() and ctx.attempt == 1 else 0.01)"


@pytest.fixture
def home() -> Iterator[Path]:
    """Directory with a short name that other users can enter: root cannot run PostgreSQL itself."""
    base = Path(tempfile.mkdtemp(prefix="rota-docs-", dir="/tmp")).resolve()
    base.chmod(0o755)
    for name in ("greet.py", "bakery.py"):
        code = (ROOT / "examples" / "tutorial" / name).read_text("utf-8")
        # Shorter sleeps keep the test fast.
        (base / name).write_text(code.replace("asyncio.sleep(1)", SOON))
    yield base
    shutil.rmtree(base)


class Shell:
    """Shell that runs the page's commands."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {
            **os.environ,
            "ROTA_LOCAL_DIR": str(home / "pg"),
            "ROTA_APP": "bakery:app",
            "COLUMNS": "120",
        }
        self._running: list[subprocess.Popen[bytes]] = []
        self._connection: psycopg.Connection[Any] | None = None

    def say(self, *words: str) -> str:
        done = subprocess.run(
            self._words(words),
            cwd=self.home,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(self._words(words), cwd=self.home, env=self.environment)
        self._running.append(process)
        return process

    def ask(self, question: str, *given: object) -> Any:
        """Query the database directly, which saves the second that a command takes to start."""
        if self._connection is None:
            [socket] = (self.home / "pg").rglob(".s.PGSQL.*[0-9]")
            dsn = f"host={socket.parent} port={socket.suffix[1:]} user=postgres dbname=rota"
            self._connection = psycopg.connect(dsn, autocommit=True)
        row = self._connection.execute(question.encode(), given or None).fetchone()
        return None if row is None else row[0]

    def _words(self, words: tuple[str, ...]) -> list[str]:
        if words[0] == "python":
            return [sys.executable, *words[1:]]
        return [sys.executable, "-m", "rota", *words[1:]]

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait(60)


def until(answer: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while (found := answer()) is None:
        assert time.monotonic() < end, "this took too long"
        time.sleep(0.1)
    return found


@pytest.mark.slow
def test_tutorial_run_survives_killed_worker(home: Path) -> None:
    with Shell(home) as shell:
        assert f"$ python greet.py\n{shell.say('python', 'greet.py')}" in SAID
        assert f"$ rota graph order\n{shell.say('rota', 'graph', 'order')}" in SAID

        workers = [shell.begin("rota", "worker") for _ in range(2)]
        run = shell.say("rota", "start", "order", "bread=rye").strip()
        holder = until(
            lambda: shell.ask(
                "select worker from rota.job_state where task = 'order.bake' and state = 'running'"
            )
        )
        process = until(lambda: shell.ask("select pid from rota.workers where id = %s", holder))
        until(
            lambda: shell.ask(
                "select 2 from rota.workers where state = 'active' having count(*) = 2"
            )
        )

        assert process in [each.pid for each in workers]
        os.kill(process, signal.SIGKILL)

        until(
            lambda: shell.ask(
                "select 1 from rota.run_state where run = %s and state = 'succeeded'", run
            )
        )
        shown = shell.say("rota", "show", run)
        assert re.search(r"✓─╯ bake #\d+ +succeeded +.*attempt 2", shown)
        assert "a loaf of rye bread, in paper" in shown
        assert shell.ask("select state from rota.workers where id = %s", holder) == "dead"

        paid = shell.say("rota", "start", "pay", "card=visa", "amount=7").strip()
        until(lambda: shell.ask("select 1 from rota.sleeping where job = %s", paid))
        assert shell.ask("select result from rota.steps where job = %s", paid) == "visa paid 7"
