"""PostgreSQL refuses to run as root: it runs under another account, and no directory is opened for that."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import rota
from rota.errors import LocalPostgresError
from rota.localpg import LocalPostgres, account, default_directory, find_binaries, runnable_binaries
from rota.localpg import paths as localpg_paths

from .apps import App, ask, nothing_left, pid_of, tell

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def owner_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def state_above(directory: Path) -> list[tuple[int, int, int]]:
    return [(s.st_mode, s.st_uid, s.st_gid) for s in map(Path.stat, directory.parents)]


@as_root
def test_root_runs_it_in_a_namespace_below_a_directory_nobody_else_may_enter(
    home: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_LOCAL_ROOT", "namespace")
    closed = home / "closed"
    closed.mkdir(mode=0o700)
    data = closed / "pg"
    made.rename(data)
    try:
        account.choose(data)
    except LocalPostgresError:
        pytest.skip("user namespaces are refused here")
    before = state_above(data)

    with LocalPostgres(data, profile="test") as server:
        assert ask(server.dsn, "select 1") == 1
        assert data.stat().st_uid == 0
        assert os.readlink(f"/proc/{pid_of(data)}/ns/user") != os.readlink("/proc/self/ns/user")

    assert state_above(data) == before
    data.rename(made)


@as_root
def test_root_drops_to_an_existing_user_that_gets_the_data_directory_only(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_LOCAL_ROOT", "drop")
    data = home / "pg"
    before = state_above(data)

    with LocalPostgres(data, profile="test") as server:
        tell(server.dsn, "create table kept as select 42 as answer")
        owner = data.stat().st_uid
        assert pwd.getpwuid(owner).pw_name in account.FALLBACK_USERS
        assert owner_of(pid_of(data)) == owner
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        assert data.with_name("pg.run").stat().st_uid == 0
    assert state_above(data) == before

    # The directory keeps its owner, with or without the variable.
    monkeypatch.delenv("ROTA_LOCAL_ROOT")
    with LocalPostgres(data, profile="test") as server:
        assert ask(server.dsn, "select answer from kept") == 42
        assert owner_of(pid_of(data)) == owner


@as_root
def test_a_database_that_was_roots_is_handed_over_when_namespaces_are_gone(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert made.stat().st_uid == 0
    monkeypatch.setattr(account, "_namespace_account", lambda uid, gid: None)
    monkeypatch.setattr(account, "FALLBACK_USERS", ("no-such-user", "nobody"))
    with LocalPostgres(made, profile="test") as server:
        assert ask(server.dsn, "select 1") == 1
        assert made.stat().st_uid == pwd.getpwnam("nobody").pw_uid


@as_root
def test_binaries_that_the_user_cannot_reach_are_copied_once(
    home: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = find_binaries().directory.parent
    closed = home / "closed"
    closed.mkdir(mode=0o700)
    package = closed / real.parent.name
    shutil.copytree(
        real, package / real.name, symlinks=True, ignore=runnable_binaries.IGNORED_FILES
    )
    libraries = real.parent.with_name(f"{real.parent.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, closed / libraries.name)
    monkeypatch.setenv("ROTA_PG_BIN", str(package / real.name / "bin"))
    monkeypatch.setenv("ROTA_LOCAL_ROOT", "drop")
    monkeypatch.setattr(tempfile, "tempdir", str(home))

    for _ in range(2):
        with LocalPostgres(made, profile="test") as server:
            assert ask(server.dsn, "select 1") == 1
    (copy,) = home.glob("rota-*")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o750
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700

    copy.chmod(0o777)
    with pytest.raises(LocalPostgresError, match="made by us"):
        LocalPostgres(made, profile="test").start()


@as_root
def test_a_directory_that_the_user_cannot_reach_is_named_in_the_error(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_LOCAL_ROOT", "drop")
    (home / "closed").mkdir(mode=0o700)
    with pytest.raises(LocalPostgresError, match=rf"may not enter {home}/closed: .*ROTA_DATABASE"):
        LocalPostgres(home / "closed" / "pg").start()


@as_root
def test_the_default_directory_of_a_root_that_drops_is_one_the_user_can_reach(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "root").mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(home / "root"))
    assert default_directory(18) == home / "root/.local/share/rota/pg18"

    monkeypatch.setenv("ROTA_LOCAL_ROOT", "drop")
    assert default_directory(18) == localpg_paths.SYSTEM_DIRECTORY / "pg18"


@as_root
def test_with_no_way_to_be_somebody_else_the_error_names_the_remedies(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "FALLBACK_USERS", ("no-such-user",))
    with pytest.raises(LocalPostgresError) as caught:
        LocalPostgres(fresh).start()
    for remedy in ("run as another user", "ROTA_DATABASE_URL", "ROTA_PG_BIN"):
        assert remedy in str(caught.value)

    monkeypatch.setenv("ROTA_LOCAL_ROOT", "useradd")
    with pytest.raises(LocalPostgresError, match="say namespace or drop"):
        LocalPostgres(fresh).start()


@pytest.fixture
def python_for_all() -> tuple[str, dict[str, str]]:
    """Return an interpreter that any user can run, and the environment in which it finds Rota."""
    paths = [Path(rota.__file__).parents[1], Path(psycopg.__file__).parents[1]]
    environment = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "HOME": "/nonexistent"}
    version = f"python3.{sys.version_info.minor}"
    for python in (sys.executable, shutil.which(version, path="/usr/bin:/usr/local/bin")):
        if python and _works_for_nobody(python, environment):
            return python, environment
    pytest.skip(f"user nobody cannot run any {version} that finds Rota and psycopg here")


def _works_for_nobody(python: str, environment: dict[str, str]) -> bool:
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


@pytest.fixture
def owned_by_nobody(home: Path) -> Iterator[Path]:
    nobody = pwd.getpwnam("nobody").pw_uid
    os.chown(home, nobody, nobody)
    yield home / "pg"
    os.chown(home, 0, 0)


@as_root
def test_an_ordinary_user_needs_none_of_this(
    owned_by_nobody: Path,
    python_for_all: tuple[str, dict[str, str]],
    app: Callable[..., App],
) -> None:
    python, environment = python_for_all
    nobody = pwd.getpwnam("nobody").pw_uid

    one = app(owned_by_nobody, python=python, env=environment, user=nobody)
    assert ask(one.started(), "select 1") == 1
    assert owner_of(pid_of(owned_by_nobody)) == nobody
    one.stop()
    assert nothing_left(owned_by_nobody)


@as_root
def test_a_user_number_without_a_name_is_given_one_in_a_namespace(
    home: Path,
    python_for_all: tuple[str, dict[str, str]],
    app: Callable[..., App],
) -> None:
    python, environment = python_for_all
    number = 54321
    os.chown(home, number, number)
    if subprocess.run(["unshare", "--user", "true"], user=number, check=False).returncode:
        pytest.skip("user namespaces are refused here")

    one = app(home / "pg", python=python, env=environment, user=number)
    assert ask(one.started(), "select 1") == 1
    one.stop()
    os.chown(home, 0, 0)
