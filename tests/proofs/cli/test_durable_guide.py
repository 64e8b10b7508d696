"""The programs of the guide to durable functions, run as the guide describes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.places import ROOT
from support.terminal import eventually

PAGE = (ROOT / "docs" / "guides" / "durable.md").read_text("utf-8")


SOON = {"ROTA_HEARTBEAT_INTERVAL": "0.3", "ROTA_DEAD_AFTER": "1"}


@pytest.fixture
def home() -> Iterator[Path]:
    """Directory with a short name that other users can enter: root cannot run PostgreSQL itself."""
    base = Path(tempfile.mkdtemp(prefix="rota-cli-", dir="/tmp")).resolve()
    base.chmod(0o755)
    yield base
    shutil.rmtree(base)


def processes(directory: Path) -> list[str]:
    listed = subprocess.run(
        ["ps", "-axww", "-o", "args="], capture_output=True, text=True, check=True
    )
    return [line for line in listed.stdout.splitlines() if str(directory) in line]


def block(language: str, beginning: str) -> str:
    """Return the first block of the page that begins so."""
    found: str = re.findall(rf"```{language}\n({re.escape(beginning)}.*?)```", PAGE, re.DOTALL)[0]
    return found


@pytest.mark.slow
def test_durable_guide_first_example_survives_sigkill(home: Path) -> None:
    program = home / "oven.py"
    program.write_text(block("python", "import asyncio"))
    shown = block("", "$ python oven.py").split("$ python oven.py\n")[1:]
    first, second = (each.replace("Killed\n", "").splitlines() for each in shown)
    environment = {**os.environ, **SOON, "ROTA_LOCAL_DIR": str(home / "pg")}

    with subprocess.Popen(
        [sys.executable, str(program)], env=environment, stdout=subprocess.PIPE, text=True
    ) as killed:
        assert killed.stdout
        said = [killed.stdout.readline().strip() for _ in first]
        killed.send_signal(signal.SIGKILL)
    done = subprocess.run(
        [sys.executable, str(program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert said == first
    assert (done.returncode, done.stdout.splitlines()) == (0, second), done.stderr
    eventually(lambda: not processes(home))


@pytest.mark.slow
def test_onboarding_example_prints_welcome_and_reminder(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "onboarding.py")],
        env={**os.environ, "ROTA_LOCAL_DIR": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    said = re.sub(r"number \d", "number _", done.stdout).splitlines()
    assert sorted(said[:2]) == [
        "to ada@example.org: welcome, you are number _",
        "to bob@example.org: welcome, you are number _",
    ]
    assert said[2:] == [
        "ada@example.org stays",
        "to bob@example.org: are you still there?",
        "bob@example.org may come back",
    ]
    eventually(lambda: not processes(home))
