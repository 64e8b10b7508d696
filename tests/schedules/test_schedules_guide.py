"""The guide on schedules and the example program work as shown."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guides" / "schedules.md").read_text("utf-8")


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield a directory with a short path that other users can enter: root cannot run PostgreSQL."""
    base = Path(tempfile.mkdtemp(prefix="rota-page-", dir="/tmp")).resolve()
    base.chmod(0o755)
    yield base
    shutil.rmtree(base)


def run_program(program: Path, home: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "ROTA_LOCAL_DIR": str(home / "pg")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_guide_first_example_ticks_every_second(home: Path) -> None:
    program = home / "tea.py"
    program.write_text(re.findall(r"```python\n(import asyncio.*?)```", PAGE, re.DOTALL)[0])

    with subprocess.Popen(
        [sys.executable, "-u", str(program)],
        env={**os.environ, "ROTA_LOCAL_DIR": str(home / "pg")},
        stdout=subprocess.PIPE,
        text=True,
    ) as making:
        assert making.stdout
        said = [making.stdout.readline() for _ in range(3)]
        making.send_signal(signal.SIGINT)
        assert making.wait(60) == 0
    times = [datetime.fromisoformat(line.strip().removeprefix("tea at ")) for line in said]
    assert {b - a for a, b in pairwise(times)} == {timedelta(seconds=1)}


@pytest.mark.slow
def test_example_program_prints_ticks_greeting_and_report(home: Path) -> None:
    said = run_program(ROOT / "examples" / "schedule.py", home)

    assert "hello, Ada" in said
    assert "the report of today" in said
    assert len([line for line in said if line.startswith("tick ")]) >= 3
    assert "report: 0 7 * * mon-fri (Europe/Paris), 0 scheduled runs" in said


def test_guide_names_every_schedule_option() -> None:
    import inspect

    from rota import Rota
    from rota.app.schedules import Schedules
    from rota.model.schedule_options import ScheduleChanges

    for name in (*inspect.signature(Rota.schedule).parameters, *ScheduleChanges.__annotations__):
        assert name == "self" or f"`{name}" in PAGE or f"{name}=" in PAGE or name in PAGE, name
    for name, value in vars(Schedules).items():
        if inspect.iscoroutinefunction(value):
            assert f"{name}(" in PAGE, name
