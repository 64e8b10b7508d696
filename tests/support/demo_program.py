"""`rota demo` as a process, in a directory of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.terminal import Program, Terminal


@pytest.fixture
def home() -> Iterator[Path]:
    """Directory with a short name that other users can enter: root cannot run PostgreSQL itself."""
    base = Path(tempfile.mkdtemp(prefix="rota-cli-", dir="/tmp")).resolve()
    base.chmod(0o755)
    yield base
    shutil.rmtree(base, ignore_errors=True)  # a demo that was left running may be deleting files


def processes(directory: Path) -> list[str]:
    listed = subprocess.run(
        ["ps", "-axww", "-o", "args="], capture_output=True, text=True, check=True
    )
    return [line for line in listed.stdout.splitlines() if str(directory) in line]


class DemoProgram(Program):
    """Demo without a terminal; its lines are read while it runs."""

    def line(self, pattern: str) -> re.Match[str]:
        assert self._process.stdout
        others = ""
        for line in self._process.stdout:
            if found := re.search(pattern, line):
                return found
            others += line
        ended = self.ended()
        raise AssertionError(f"it never said {pattern!r}, but:\n{others}\n{ended.err}")


@pytest.fixture
def start_demo(home: Path) -> Iterator[Callable[..., DemoProgram]]:
    shown: list[DemoProgram] = []

    def begin(*words: str) -> DemoProgram:
        environment = {**Terminal(None).environment, "TMPDIR": str(home)}
        shown.append(DemoProgram(("demo", *words), environment, home))
        return shown[-1]

    yield begin
    for each in shown:
        each.close()
