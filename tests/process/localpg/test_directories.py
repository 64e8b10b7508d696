"""Locations of files, and directories that stay unchanged."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from rota.errors import LocalPostgresError
from rota.localpg import LocalPostgres, default_directory, find_binaries
from rota.localpg.paths import make_private
from support.app_processes import fetch_value, has_no_processes


def test_socket_path_too_long_uses_short_private_directory(
    temporary_home: Path, data_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary_home))
    long = temporary_home / ("x" * 120) / "pg"
    long.parent.mkdir()
    data_directory.rename(long)

    with LocalPostgres(long, profile="test") as server:
        assert fetch_value(server.dsn, "select 1") == 1
        (sockets,) = temporary_home.glob("rota-*")
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert list(sockets.glob(".s.PGSQL.*"))

    assert not sockets.exists()
    assert has_no_processes(long)
    long.rename(data_directory)


def test_directory_with_special_letters_gives_usable_dsn(
    temporary_home: Path, data_directory: Path
) -> None:
    odd = temporary_home / "a, b:c & %20 ü" / "pg"
    odd.parent.mkdir()
    data_directory.rename(odd)
    with LocalPostgres(odd, profile="test") as server:
        assert fetch_value(server.dsn, "select 1") == 1
    odd.rename(data_directory)


def test_make_private_open_directory_or_symlink_is_refused(temporary_home: Path) -> None:
    (temporary_home / "trap").mkdir()
    (temporary_home / "trap").chmod(0o755)
    with pytest.raises(LocalPostgresError, match="should be a directory of user"):
        make_private(temporary_home / "trap", os.geteuid())

    (temporary_home / "link").symlink_to(temporary_home)
    with pytest.raises(LocalPostgresError, match="should be a directory of user"):
        make_private(temporary_home / "link", os.geteuid())


def test_directories_created_are_private_and_existing_stay_unchanged(temporary_home: Path) -> None:
    found = temporary_home / "found"
    found.mkdir()
    found.chmod(0o751)
    above = [found, *found.parents]
    before = [(path.stat().st_mode, path.stat().st_uid, path.stat().st_gid) for path in above]

    data = found / "made" / "pg"
    with LocalPostgres(data, profile="test"):
        for path in (data.parent, data, data.with_name("pg.run")):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700

    after = [(path.stat().st_mode, path.stat().st_uid, path.stat().st_gid) for path in above]
    assert after == before


def test_default_directory_follows_environment_and_major_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_directory(18) == Path("/data/rota/pg18")
    monkeypatch.setenv("XDG_DATA_HOME", "relative/is/ignored")
    assert default_directory(18) == Path.home() / ".local/share/rota/pg18"
    monkeypatch.setenv("ROTA_LOCAL_DIR", "/srv/mine")
    assert default_directory() == Path(f"/srv/mine/pg{find_binaries().major}")


def test_start_without_directory_uses_the_default(
    temporary_home: Path, data_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_LOCAL_DIR", str(temporary_home))
    data_directory.rename(default_directory())
    with LocalPostgres(profile="test") as server:
        assert server.status().directory == default_directory()
    default_directory().rename(data_directory)


def test_start_directory_that_cannot_be_created_is_named_in_error() -> None:
    with pytest.raises(
        LocalPostgresError, match=r"/dev/null/below cannot be made .*ROTA_LOCAL_DIR"
    ):
        LocalPostgres(Path("/dev/null/below/pg")).start()
