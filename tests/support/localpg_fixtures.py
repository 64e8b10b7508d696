from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

import rota
from rota.localpg import LocalPostgres, find_binaries
from rota.localpg.account import ServerAccount, chown_tree
from support.app_processes import (
    App,
    has_no_processes,
    processes,
    wait_until,
)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROTA_PG_BIN", "ROTA_LOCAL_DIR", "ROTA_LOCAL_ROOT", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def temporary_home() -> Iterator[Path]:
    """Temporary directory with a short name that other users can enter.

    A process that still runs in it at the end is killed and fails the test.
    """
    base = Path(tempfile.mkdtemp(prefix="rota-test-", dir="/tmp")).resolve()
    base.chmod(0o755)
    yield base
    try:
        wait_until(lambda: has_no_processes(base), within=60)
    finally:
        for pid in processes(base):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(base)


@pytest.fixture
def new_data_directory(temporary_home: Path) -> Path:
    """Path of a data directory that does not exist yet."""
    return temporary_home / "pg"


@pytest.fixture(scope="session")
def _shared_data_directory() -> Iterator[Path]:
    """Place of the shared data directory between tests."""
    base = Path(tempfile.mkdtemp(prefix="rota-test-", dir="/tmp")).resolve()
    yield base / "spare"
    shutil.rmtree(base)


@pytest.fixture
def data_directory(new_data_directory: Path, _shared_data_directory: Path) -> Iterator[Path]:
    """Data directory with the database `rota`, without a server.

    initdb takes a second, so tests reuse one directory unless they moved or broke it.
    """
    if not _shared_data_directory.exists():
        with LocalPostgres(_shared_data_directory, profile="test"):
            pass
    mine = ServerAccount(
        _shared_data_directory.stat().st_uid, _shared_data_directory.stat().st_gid, ""
    )
    _shared_data_directory.rename(new_data_directory)
    yield new_data_directory
    with suppress(AssertionError):
        wait_until(lambda: has_no_processes(new_data_directory), within=60)
    if new_data_directory.is_dir() and has_no_processes(new_data_directory):
        chown_tree(new_data_directory, mine)
        new_data_directory.rename(_shared_data_directory)


@pytest.fixture
def paused_binaries(temporary_home: Path) -> Path:
    """Binaries that wait for a file `go` beside them. Their initdb has written half a database by then."""
    directory = temporary_home / "waiting"
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
def start_app() -> Iterator[Callable[..., App]]:
    """Function that starts apps; they are killed at the end."""
    running: list[App] = []

    def start(directory: Path, **options: object) -> App:
        running.append(App(directory, **options))  # type: ignore[arg-type]
        return running[-1]

    yield start
    for one in running:
        one.close()


@pytest.fixture
def shared_python() -> tuple[str, dict[str, str]]:
    """Return an interpreter that any user can run, and the environment in which it finds Rota."""
    paths = [Path(rota.__file__).parents[1], Path(psycopg.__file__).parents[1]]
    environment = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "HOME": "/nonexistent"}
    version = f"python3.{sys.version_info.minor}"
    for python in (sys.executable, shutil.which(version, path="/usr/bin:/usr/local/bin")):
        if python and _user_nobody_can_run(python, environment):
            return python, environment
    pytest.skip(f"user nobody cannot run any {version} that finds Rota and psycopg here")


def _user_nobody_can_run(python: str, environment: dict[str, str]) -> bool:
    nobody = pwd.getpwnam("nobody").pw_uid
    try:
        subprocess.run(
            [python, "-c", "import rota.localpg, psycopg"],
            user=nobody,
            group=nobody,
            extra_groups=[],
            cwd="/",
            env={**os.environ, **environment},
            capture_output=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return False
    return True
