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

from .manifests import DEPLOY, duration, known_variables, needed, parsed

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


def test_there_is_a_unit_for_each_and_nothing_else() -> None:
    assert sorted(each.name for each in UNITS.iterdir()) == sorted([*NAMES, "rota.env"])


@pytest.mark.parametrize("name", NAMES)
def test_each_is_told_what_rota_understands(name: str) -> None:
    done, _ = parsed(command(name))

    assert done == {NAMES[0]: "db migrate", NAMES[1]: "serve", NAMES[2]: "worker"}[name]
    assert environment(name).keys() <= known_variables()
    Settings.read(environment(name))


@pytest.mark.parametrize("name", NAMES[1:])
def test_nobody_is_killed_before_it_has_left(name: str) -> None:
    [allowed] = unit(name)["TimeoutStopSec"]

    assert duration(allowed) >= needed(environment(name), balanced=name == "rota-web@.service")


@pytest.mark.parametrize("name", NAMES[1:])
def test_the_signal_goes_to_the_first_process_and_the_rest_to_all(name: str) -> None:
    """A second SIGTERM hurries a process: children would get one from systemd and one from their parent."""
    assert unit(name)["KillMode"] == ["mixed"]
    assert "KillSignal" not in unit(name)


def test_who_dies_comes_back_and_who_was_drained_does_not() -> None:
    assert unit("rota-worker@.service")["Restart"] == ["on-failure"]
    assert unit("rota-web@.service")["Restart"] == ["always"]
    for name in NAMES[1:]:
        # Otherwise systemd would give up after five starts in ten seconds.
        assert unit(name)["StartLimitIntervalSec"] == ["0"]


@pytest.mark.parametrize("name", NAMES)
def test_the_databases_url_is_handed_over_as_a_file(name: str) -> None:
    [credential] = unit(name)["LoadCredential"]
    handle, path = credential.split(":")

    assert environment(name)["ROTA_DATABASE_URL_FILE"] == f"%d/{handle}"
    assert Path(path).is_absolute()
    assert "ROTA_DATABASE_URL" not in environment(name)


def test_what_systemd_says_to_them(tmp_path: Path) -> None:
    for path in _here(tmp_path):
        # A template is checked as one of its instances.
        name = path.name.replace("@.", "@1.")
        done = _analyze("verify", "--recursive-errors=no", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        assert path.name.partition("@")[0] not in done.stderr, done.stderr


def test_what_systemd_finds_exposed(tmp_path: Path) -> None:
    for path in _here(tmp_path):
        words = ("security", "--offline=true", f"--threshold={LEAST_EXPOSED}", str(path))
        done = _analyze(*words)
        assert done.returncode == 0, done.stdout[-200:]


def _analyze(*words: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("there is no systemd-analyze here; on Debian and Ubuntu: apt install systemd")
    return subprocess.run([program, *words], capture_output=True, text=True)


def _here(tmp_path: Path) -> list[Path]:
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
