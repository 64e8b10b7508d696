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

from .apps import ask, nothing_left


def test_a_path_too_long_for_a_socket_gets_a_short_private_one(
    home: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    long = home / ("x" * 120) / "pg"
    long.parent.mkdir()
    made.rename(long)

    with LocalPostgres(long, profile="test") as server:
        assert ask(server.dsn, "select 1") == 1
        (sockets,) = home.glob("rota-*")
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert list(sockets.glob(".s.PGSQL.*"))

    assert not sockets.exists()
    assert nothing_left(long)
    long.rename(made)


def test_a_path_that_a_dsn_would_split_at_works(home: Path, made: Path) -> None:
    odd = home / "a, b:c & %20 ü" / "pg"
    odd.parent.mkdir()
    made.rename(odd)
    with LocalPostgres(odd, profile="test") as server:
        assert ask(server.dsn, "select 1") == 1
    odd.rename(made)


def test_a_private_directory_that_somebody_else_opened_up_is_refused(home: Path) -> None:
    (home / "trap").mkdir()
    (home / "trap").chmod(0o755)
    with pytest.raises(LocalPostgresError, match="should be a directory of user"):
        make_private(home / "trap", os.geteuid())

    (home / "link").symlink_to(home)
    with pytest.raises(LocalPostgresError, match="should be a directory of user"):
        make_private(home / "link", os.geteuid())


def test_what_we_make_is_private_and_what_we_find_stays_as_it_is(home: Path) -> None:
    found = home / "found"
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


def test_the_default_directory_is_in_the_users_data_and_carries_the_major(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_directory(18) == Path("/data/rota/pg18")
    monkeypatch.setenv("XDG_DATA_HOME", "relative/is/ignored")
    assert default_directory(18) == Path.home() / ".local/share/rota/pg18"
    monkeypatch.setenv("ROTA_LOCAL_DIR", "/srv/mine")
    assert default_directory() == Path(f"/srv/mine/pg{find_binaries().major}")


def test_without_a_directory_the_default_one_is_used(
    home: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_LOCAL_DIR", str(home))
    made.rename(default_directory())
    with LocalPostgres(profile="test") as server:
        assert server.status().directory == default_directory()
    default_directory().rename(made)


def test_a_place_that_cannot_be_made_is_named_in_the_error() -> None:
    with pytest.raises(
        LocalPostgresError, match=r"/dev/null/below cannot be made .*ROTA_LOCAL_DIR"
    ):
        LocalPostgres(Path("/dev/null/below/pg")).start()
