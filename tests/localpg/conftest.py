from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rota.localpg import LocalPostgres, find_binaries
from rota.localpg.account import ServerAccount, chown_tree

from .apps import App, eventually, nothing_left, processes

if os.name == "nt":
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROTA_PG_BIN", "ROTA_LOCAL_DIR", "ROTA_LOCAL_ROOT", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def home() -> Iterator[Path]:
    """Temporary directory with a short name that other users can enter.

    A process that still runs in it at the end is killed and fails the test.
    """
    base = Path(tempfile.mkdtemp(prefix="rota-test-", dir="/tmp")).resolve()
    base.chmod(0o755)
    yield base
    try:
        eventually(lambda: nothing_left(base), within=60)
    finally:
        for pid in processes(base):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(base)


@pytest.fixture
def fresh(home: Path) -> Path:
    """Path of a data directory that does not exist yet."""
    return home / "pg"


@pytest.fixture(scope="session")
def _spare() -> Iterator[Path]:
    """Place of the shared data directory between tests."""
    base = Path(tempfile.mkdtemp(prefix="rota-test-", dir="/tmp")).resolve()
    yield base / "spare"
    shutil.rmtree(base)


@pytest.fixture
def made(fresh: Path, _spare: Path) -> Iterator[Path]:
    """Data directory with the database `rota`, without a server.

    initdb takes a second, so tests reuse one directory unless they moved or broke it.
    """
    if not _spare.exists():
        with LocalPostgres(_spare, profile="test"):
            pass
    mine = ServerAccount(_spare.stat().st_uid, _spare.stat().st_gid, "")
    _spare.rename(fresh)
    yield fresh
    with suppress(AssertionError):
        eventually(lambda: nothing_left(fresh), within=60)
    if fresh.is_dir() and nothing_left(fresh):
        chown_tree(fresh, mine)
        fresh.rename(_spare)


@pytest.fixture
def waiting(home: Path) -> Path:
    """Binaries that wait for a file `go` beside them. Their initdb has written half a database by then."""
    directory = home / "waiting"
    directory.mkdir()
    half = (
        'for word; do case "$word" in --pgdata=*) half="${word#--pgdata=}/PG_VERSION";; esac; done'
    )
    for name in ("postgres", "initdb"):
        program = directory / name
        program.write_text(
            f"""#!/bin/sh
            real={find_binaries().program(name)}
            [ "$1" = --version ] && exec $real "$@"
            {half}
            [ -n "$half" ] && echo {find_binaries().major} > "$half"
            until [ -e {directory}/go ]; do sleep 0.02; done
            [ -n "$half" ] && rm "$half"
            exec $real "$@"
            """
        )
        program.chmod(0o755)
    return directory


@pytest.fixture
def app() -> Iterator[Callable[..., App]]:
    """Function that starts apps; they are killed at the end."""
    running: list[App] = []

    def start(directory: Path, **options: object) -> App:
        running.append(App(directory, **options))  # type: ignore[arg-type]
        return running[-1]

    yield start
    for one in running:
        one.close()
