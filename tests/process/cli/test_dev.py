"""`rota dev`: a saved change restarts the app, interrupted jobs run again, and Ctrl-C ends everything."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from rota.cli import app_loader
from rota.cli import dev as module
from rota.cli.exit_codes import CommandError
from rota.cli.file_watcher import FileWatcher
from rota.cli.parent_pipe import UP
from support.demo_program import home
from support.dev_project import APP, Project, port

__all__ = ["home"]


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
    monkeypatch.setattr(module, "has_dashboard", lambda: False)
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
