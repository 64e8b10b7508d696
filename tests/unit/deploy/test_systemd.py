"""`deploy/systemd`: the same processes without containers."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rota.model.settings import Settings
from support.manifests import known_variables, parse_command, parse_duration, shutdown_seconds
from support.places import DEPLOY

UNITS = DEPLOY / "systemd"
NAMES = ("rota-migrate.service", "rota-web@.service", "rota-worker@.service")
LEAST_EXPOSED = 20
"""Exposure in tenths, as `systemd-analyze security` computes it: 0 is the safest, 100 the most exposed."""


def unit(name: str) -> dict[str, list[str]]:
    """Return the settings of a unit by key; a key may occur several times."""
    said: dict[str, list[str]] = {}
    for line in (UNITS / name).read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            key, value = line.split("=", 1)
            said.setdefault(key, []).append(value)
    return said


def environment(name: str) -> dict[str, str]:
    shared = (UNITS / "rota.env").read_text().splitlines()
    lines = [line for line in shared if line and not line.startswith("#")]
    words = [word for line in unit(name).get("Environment", []) for word in shlex.split(line)]
    return dict(line.split("=", 1) for line in [*lines, *words])


def command(name: str) -> list[str]:
    [said] = unit(name)["ExecStart"]
    return shlex.split(said.replace("%i", "1"))[1:]


def test_systemd_directory_has_exactly_the_units() -> None:
    assert sorted(each.name for each in UNITS.iterdir()) == sorted([*NAMES, "rota.env"])


@pytest.mark.parametrize("name", NAMES)
def test_systemd_unit_has_valid_command_and_variables(name: str) -> None:
    done, _ = parse_command(command(name))

    assert done == {NAMES[0]: "db migrate", NAMES[1]: "serve", NAMES[2]: "worker"}[name]
    assert environment(name).keys() <= known_variables()
    Settings.read(environment(name))


@pytest.mark.parametrize("name", NAMES[1:])
def test_systemd_stop_timeout_covers_the_drain(name: str) -> None:
    [allowed] = unit(name)["TimeoutStopSec"]

    assert parse_duration(allowed) >= shutdown_seconds(
        environment(name), balanced=name == "rota-web@.service"
    )


@pytest.mark.parametrize("name", NAMES[1:])
def test_systemd_sigterm_goes_only_to_main_process(name: str) -> None:
    """A second SIGTERM hurries a process: children would get one from systemd and one from their parent."""
    assert unit(name)["KillMode"] == ["mixed"]
    assert "KillSignal" not in unit(name)


def test_systemd_failed_process_restarts_and_drained_worker_does_not() -> None:
    assert unit("rota-worker@.service")["Restart"] == ["on-failure"]
    assert unit("rota-web@.service")["Restart"] == ["always"]
    for name in NAMES[1:]:
        # Otherwise systemd would give up after five starts in ten seconds.
        assert unit(name)["StartLimitIntervalSec"] == ["0"]


@pytest.mark.parametrize("name", NAMES)
def test_systemd_database_url_is_passed_as_credential_file(name: str) -> None:
    [credential] = unit(name)["LoadCredential"]
    handle, path = credential.split(":")

    assert environment(name)["ROTA_DATABASE_URL_FILE"] == f"%d/{handle}"
    assert Path(path).is_absolute()
    assert "ROTA_DATABASE_URL" not in environment(name)


def test_systemd_analyze_verify_accepts_the_units(tmp_path: Path) -> None:
    for path in _copy_units(tmp_path):
        # A template is checked as one of its instances.
        name = path.name.replace("@.", "@1.")
        done = _analyze("verify", "--recursive-errors=no", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        assert path.name.partition("@")[0] not in done.stderr, done.stderr


def test_systemd_analyze_security_is_below_threshold(tmp_path: Path) -> None:
    for path in _copy_units(tmp_path):
        words = ("security", "--offline=true", f"--threshold={LEAST_EXPOSED}", str(path))
        done = _analyze(*words)
        assert done.returncode == 0, done.stdout[-200:]


def _analyze(*words: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("there is no systemd-analyze here; on Debian and Ubuntu: apt install systemd")
    return subprocess.run([program, *words], capture_output=True, text=True)


def _copy_units(tmp_path: Path) -> list[Path]:
    """Copy the units, with a program that exists."""
    program = Path(sys.executable).with_name("rota")
    made = []
    for name in NAMES:
        text = (UNITS / name).read_text()
        text, count = re.subn(
            r"^ExecStart=/opt/shop/bin/rota", f"ExecStart={program}", text, flags=re.M
        )
        assert count == 1, name
        (tmp_path / name).write_text(text)
        made.append(tmp_path / name)
    return made
