"""PostgreSQL refuses to run as root: it runs under another account, and no directory is opened for that."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rota.errors import LocalPostgresError
from rota.localpg import LocalPostgres, account, default_directory, find_binaries, runnable_binaries
from rota.localpg import paths as localpg_paths
from support.app_processes import App, execute_sql, fetch_value, has_no_processes, server_pid

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def owner_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def parent_permissions(directory: Path) -> list[tuple[int, int, int]]:
    return [(s.st_mode, s.st_uid, s.st_gid) for s in map(Path.stat, directory.parents)]


@as_root
def test_account_root_uses_namespace_below_private_directory(
    temporary_home: Path, data_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_LOCAL_ROOT", "namespace")
    closed = temporary_home / "closed"
    closed.mkdir(mode=0o700)
    data = closed / "pg"
    data_directory.rename(data)
    try:
        account.choose(data)
    except LocalPostgresError:
        pytest.skip("user namespaces are refused here")
    before = parent_permissions(data)

    with LocalPostgres(data, profile="test") as server:
        assert fetch_value(server.dsn, "select 1") == 1
        assert data.stat().st_uid == 0
        assert os.readlink(f"/proc/{server_pid(data)}/ns/user") != os.readlink("/proc/self/ns/user")

    assert parent_permissions(data) == before
    data.rename(data_directory)


@as_root
def test_account_root_drops_to_user_that_owns_only_data_directory(
    temporary_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_LOCAL_ROOT", "drop")
    data = temporary_home / "pg"
    before = parent_permissions(data)

    with LocalPostgres(data, profile="test") as server:
        execute_sql(server.dsn, "create table kept as select 42 as answer")
        owner = data.stat().st_uid
        assert pwd.getpwuid(owner).pw_name in account.FALLBACK_USERS
        assert owner_of(server_pid(data)) == owner
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        assert data.with_name("pg.run").stat().st_uid == 0
    assert parent_permissions(data) == before

    # The directory keeps its owner, with or without the variable.
    monkeypatch.delenv("ROTA_LOCAL_ROOT")
    with LocalPostgres(data, profile="test") as server:
        assert fetch_value(server.dsn, "select answer from kept") == 42
        assert owner_of(server_pid(data)) == owner


@as_root
def test_account_without_namespaces_changes_owner_of_data_directory(
    data_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert data_directory.stat().st_uid == 0
    monkeypatch.setattr(account, "_namespace_account", lambda uid, gid: None)
    monkeypatch.setattr(account, "FALLBACK_USERS", ("no-such-user", "nobody"))
    with LocalPostgres(data_directory, profile="test") as server:
        assert fetch_value(server.dsn, "select 1") == 1
        assert data_directory.stat().st_uid == pwd.getpwnam("nobody").pw_uid


@as_root
def test_account_unreachable_binaries_are_copied_once(
    temporary_home: Path, data_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = find_binaries().directory.parent
    closed = temporary_home / "closed"
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
    monkeypatch.setattr(tempfile, "tempdir", str(temporary_home))

    for _ in range(2):
        with LocalPostgres(data_directory, profile="test") as server:
            assert fetch_value(server.dsn, "select 1") == 1
    (copy,) = temporary_home.glob("rota-*")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o750
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700

    copy.chmod(0o777)
    with pytest.raises(LocalPostgresError, match="made by us"):
        LocalPostgres(data_directory, profile="test").start()


@as_root
def test_account_unreachable_directory_is_named_in_error(
    temporary_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_LOCAL_ROOT", "drop")
    (temporary_home / "closed").mkdir(mode=0o700)
    with pytest.raises(
        LocalPostgresError, match=rf"may not enter {temporary_home}/closed: .*ROTA_DATABASE"
    ):
        LocalPostgres(temporary_home / "closed" / "pg").start()


@as_root
def test_default_directory_of_dropping_root_is_the_system_directory(
    temporary_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (temporary_home / "root").mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(temporary_home / "root"))
    assert default_directory(18) == temporary_home / "root/.local/share/rota/pg18"

    monkeypatch.setenv("ROTA_LOCAL_ROOT", "drop")
    assert default_directory(18) == localpg_paths.SYSTEM_DIRECTORY / "pg18"


@as_root
def test_account_without_fallback_user_error_lists_remedies(
    new_data_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "FALLBACK_USERS", ("no-such-user",))
    with pytest.raises(LocalPostgresError) as caught:
        LocalPostgres(new_data_directory).start()
    for remedy in ("run as another user", "ROTA_DATABASE_URL", "ROTA_PG_BIN"):
        assert remedy in str(caught.value)

    monkeypatch.setenv("ROTA_LOCAL_ROOT", "useradd")
    with pytest.raises(LocalPostgresError, match="say namespace or drop"):
        LocalPostgres(new_data_directory).start()


@pytest.fixture
def owned_by_nobody(temporary_home: Path) -> Iterator[Path]:
    nobody = pwd.getpwnam("nobody").pw_uid
    os.chown(temporary_home, nobody, nobody)
    yield temporary_home / "pg"
    os.chown(temporary_home, 0, 0)


@as_root
def test_account_ordinary_user_runs_server_under_own_uid(
    owned_by_nobody: Path,
    shared_python: tuple[str, dict[str, str]],
    start_app: Callable[..., App],
) -> None:
    python, environment = shared_python
    nobody = pwd.getpwnam("nobody").pw_uid

    one = start_app(owned_by_nobody, python=python, env=environment, user=nobody)
    assert fetch_value(one.started(), "select 1") == 1
    assert owner_of(server_pid(owned_by_nobody)) == nobody
    one.stop()
    assert has_no_processes(owned_by_nobody)
