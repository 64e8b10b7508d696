"""`rota dev`: a saved change restarts the app, interrupted jobs run again, and Ctrl-C ends everything."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from process.cli.test_demo import home, processes
from rota.cli import app_loader
from rota.cli import dev as module
from rota.cli.exit_codes import CommandError
from rota.cli.file_watcher import FileWatcher
from rota.cli.parent_pipe import UP
from support.terminal import Program, Terminal, children_of, eventually, is_alive

__all__ = ["home"]

APP = """
import asyncio
from pathlib import Path
from rota import Context, Rota

app = Rota()
NOTES = Path(__file__).with_name("notes")

@app.task
async def build(ctx: Context) -> str:
    with NOTES.open("a") as notes:
        notes.write(f"VERSION attempt {ctx.attempt}\\n")
    await asyncio.sleep(PATIENCE)
    return "VERSION"
"""


def port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        number: int = bound.getsockname()[1]
        return number


class Project:
    """Directory with an app and `rota dev` running in it, on an embedded PostgreSQL of its own."""

    def __init__(self, home: Path) -> None:
        self.directory = home / "project"
        self.directory.mkdir()
        self.notes = self.directory / "notes"
        self.terminal = Terminal(None, self.directory)
        self.terminal.environment["ROTA_LOCAL_DIR"] = str(home / "pg")
        self.port = port()

    def save(self, version: str, patience: float = 0, text: str = APP) -> None:
        filled = text.replace("VERSION", version).replace("PATIENCE", str(patience))
        (self.directory / "site_app.py").write_text(filled)

    def noted(self, line: str) -> bool:
        return self.notes.exists() and line in self.notes.read_text().splitlines()

    def page(self) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=60) as answer:
            status: int = answer.status
            return status


@pytest.fixture
def project(home: Path) -> Project:
    return Project(home)


@pytest.fixture
def dev(project: Project) -> Iterator[Program]:
    project.save("one", patience=60)
    with project.terminal.program("dev", "site_app:app", "-p", str(project.port)) as dev:
        yield dev


@pytest.mark.slow
def test_dev_saved_change_restarts_app_without_losing_jobs(
    project: Project, dev: Program, home: Path
) -> None:
    dev.said("uses the embedded PostgreSQL")
    dev.said("] dashboard at http:")
    assert project.page() == 200
    started = project.terminal.run("--dsn", "local", "start", "-a", "site_app:app", "build")
    run = started.out.strip()
    eventually(lambda: project.noted("one attempt 1"))
    before = children_of(dev.pid)

    # A syntax error: the running processes continue.
    project.save("one", text="def broken(:")
    dev.said("SyntaxError")
    dev.said("fix the file and save it")
    assert children_of(dev.pid) == before

    # It compiles, but the import fails.
    project.save("one", text="raise RuntimeError('not today')")
    dev.said("RuntimeError: not today")
    dev.said("did not start")
    assert not any("rota/cli" in line for line in dev.said("File "))
    assert project.page() == 200  # served by the last code that worked

    project.save("two")

    eventually(lambda: project.noted("two attempt 1"))  # interrupted by a restart: not counted
    dev.said("] dashboard at http:", times=2)
    assert project.page() == 200
    shown = project.terminal.run("--dsn", "local", "show", run)
    assert '"two"' in shown.out
    after = children_of(dev.pid)
    assert len(after) == 2
    assert not set(after) & set(before)

    # A process that dies by itself is replaced.
    for pid in after:
        if "worker" in Path(f"/proc/{pid}/cmdline").read_text():
            dev_worker = pid

    os.kill(dev_worker, signal.SIGKILL)
    dev.said("the worker was ended by SIGKILL")
    eventually(lambda: len(children_of(dev.pid)) == 2)

    dev.tell(signal.SIGINT)
    ended = dev.ended()
    assert ended.code == 0
    assert not any(is_alive(pid) for pid in after)
    eventually(lambda: not processes(home))


def test_dev_missing_module_exits_with_usage_error(project: Project) -> None:
    done = project.terminal.run("dev", "nowhere:app", "-p", str(project.port))

    assert done.code == 2
    assert "there is no module 'nowhere'" in done.err


MISTAKE = """
from rota import Rota

app = Rota()

@app.task(priority=99)
def build(): ...
"""


def test_dev_broken_file_waits_until_the_file_is_fixed(project: Project, empty_dsn: str) -> None:
    project.terminal.environment["ROTA_DATABASE_URL"] = empty_dsn
    project.save("one", text=MISTAKE)
    with project.terminal.program("dev", "site_app:app", "-p", str(project.port)) as dev:
        dev.said("priority")
        dev.said("save a file to retry")
        project.save("one", text="shop = 1")
        dev.said("module 'site_app' has no 'app'")
        dev.said("save a file to retry", times=2)

        project.save("two")

        dev.said("up to")
        dev.tell(signal.SIGINT)
        assert dev.ended().code == 0


def test_dev_no_reload_broken_file_exits(project: Project, empty_dsn: str) -> None:
    project.terminal.environment["ROTA_DATABASE_URL"] = empty_dsn
    project.save("one", text=MISTAKE)

    done = project.terminal.run("dev", "site_app:app", "--no-reload", "-p", str(project.port))

    assert done.code == 2
    assert "save a file" not in done.err


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("site_app", "write MODULE:APP"), ("site_app.py:app", "is a file"), ("a.b:app", "module 'a'")],
)
def test_dev_invalid_app_name_exits_with_usage_error(
    project: Project, name: str, complaint: str
) -> None:
    done = project.terminal.run("dev", name, "-p", str(project.port))

    assert done.code == 2
    assert complaint in done.complaint


def test_check_app_name_finds_module_in_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The installed command, unlike `python -m rota`, does not have this directory in sys.path."""
    (tmp_path / "lies_here.py").write_text("raise RuntimeError('it was imported')")
    monkeypatch.chdir(tmp_path)

    app_loader.check_app_name("lies_here:app")
    with pytest.raises(CommandError, match=r"there is no module 'lies_there'"):
        app_loader.check_app_name("lies_there:app")


def test_dev_missing_database_at_first_start_exits(project: Project) -> None:
    project.save("one")
    project.terminal.environment["ROTA_DATABASE_URL"] = f"postgresql://127.0.0.1:{port()}/x"

    done = project.terminal.run("dev", "site_app:app", "-p", str(project.port))

    assert done.code == 4
    assert "cannot connect to the database" in done.err


WORKER = """
import os, sys, time
from pathlib import Path
notes, lifeline = Path(sys.argv[1]), int(sys.argv[-1])
many = len(notes.read_text()) if notes.exists() else 0
notes.write_text("." * (many + 1))
if many in (1, 2):
    sys.exit(4)
os.write(lifeline, UP)
if many == 0:
    sys.exit(1)
time.sleep(60)
"""


async def test_dev_short_database_outage_restarts_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Worker starts: the first dies, two find no database, and the fourth stays."""
    monkeypatch.setattr(module, "RESTART_DELAY_SECONDS", 0.01)
    monkeypatch.setattr(module, "NO_DATABASE_DELAY_SECONDS", 0.01)
    monkeypatch.setattr(module, "find_spec", lambda name: None)  # no dashboard
    notes = tmp_path / "notes"
    worker = [sys.executable, "-S", "-c", WORKER.replace("UP", repr(UP)), str(notes)]
    session = module.DevSession("site:app", worker, [], FileWatcher([]), 8000, 0.1)
    running = asyncio.create_task(session.run(os.environ))
    try:
        async with asyncio.timeout(60):
            while not (notes.exists() and notes.read_text() == "...." and session._exits):
                assert not running.done()
                await asyncio.sleep(0.005)
    finally:
        session._stopping.set()
        assert await running == 0


def test_dev_unreadable_url_file_exits_with_usage_error(project: Project) -> None:
    project.save("one")
    words = ("dev", "site_app:app", "-p", str(project.port))

    done = project.terminal.run(*words, ROTA_DATABASE_URL_FILE="/nowhere/url")

    assert done.code == 2
    assert "ROTA_DATABASE_URL_FILE names /nowhere/url" in done.complaint


def test_dev_embedded_database_notice_excepts_apps_with_own_dsn(
    project: Project, empty_dsn: str
) -> None:
    project.save("one", text=APP.replace("Rota()", f"Rota({empty_dsn!r})"))
    with project.terminal.program("dev", "site_app:app", "-p", str(project.port)) as dev:
        [line] = dev.said("embedded PostgreSQL")
        assert "unless the app names one" in line
        dev.tell(signal.SIGINT)
        assert dev.ended().code == 0


def test_dev_port_in_use_exits_with_remedy(project: Project) -> None:
    project.save("one")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", project.port))
        taken.listen()

        done = project.terminal.run("dev", "site_app:app", "-p", str(project.port))

    assert done.code == 1
    assert "choose another with --port" in done.complaint
